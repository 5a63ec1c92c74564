"""What the files of a record say, read with gzip and json alone."""

import base64
import gzip
import json

import numpy as np

TYPES = {"token_ids": "i4", "log_probs": "f4", "behavior_log_probs": "f4", "entropies": "f2"}
RECORD = "attempts/0001/record-0000-of-0001.jsonl.gz"


def read_lines(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def lines_of(run, *kinds):
    """Return the lines of a run folder of these kinds, or all, those of later attempts later."""
    lines = [line for path in sorted(run.glob("attempts/*/record-*.jsonl.gz")) for line in read_lines(path)]
    return [line for line in lines if not kinds or line["kind"] in kinds]


def values_of(text, name):
    planes = np.frombuffer(base64.b64decode(text), "u1").reshape(np.dtype(TYPES[name]).itemsize, -1)
    return np.frombuffer(planes.T.tobytes(), TYPES[name])


def tokens_of(run, trajectory_id, replayed_in=None):
    """Return the values of a trajectory's tokens that were kept, as generated or as replayed in a step."""
    for line in lines_of(run, "tokens"):
        is_it = line["id"] == trajectory_id and line["is_replayed"] == (replayed_in is not None)
        if is_it and replayed_in in (None, line["step"]):
            return {name: values_of(line[name], name).tolist() for name in TYPES if name in line}
    return None
