"""Miles and slime: `--save-debug-rollout-data` or `--dump-details`, a file of `torch.save` a step, read without torch.

Source: `RolloutManager._save_debug_rollout_data` and `Sample.to_dict` of Miles and of slime.
"""

import zipfile
from collections.abc import Iterator
from pathlib import Path

from exgrpo.jobs.runs.rollout_formats.plain_pickle import load_torch_file
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, number_of, step_of
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo.jobs.runs.rollout_formats.tokens import of_mask
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory

_OWN = ("prompt", "response", "reward", "label", "group_index", "response_length", "status")
_ENDS = {"completed": False, "truncated": True}


def recognises(sample: Sample) -> bool:
    """Whether the first file is one of `torch.save` with the samples of a rollout."""
    return sample.head.startswith(b"PK") and b"rollout_id" in sample.head and b"samples" in sample.head


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the samples of each file; one that is still being written is left for later."""
    for file in source.files(".pt"):
        if source.is_new(file):
            yield from _new_samples(source, file)


def _new_samples(source: RolloutSource, file: Path) -> Iterator[RecordedStep]:
    size = file.stat().st_size
    try:
        dump = load_torch_file(file)
        if not isinstance(dump, dict) or not isinstance(dump.get("samples"), list):
            raise ValueError("expected the samples of a rollout.")
        step = step_of(dump, "rollout_id")
    except zipfile.BadZipFile:
        return
    except ValueError as error:
        source.bad.add(file, 0, str(error))
    else:
        samples = enumerate(dump["samples"], 1)
        yield from source.rollouts([file], lambda row, _: [(step, _trajectory(row, file))], lambda _: samples)
    source.advance(file, size)


def _trajectory(sample: Row, file: Path) -> RecordedTrajectory:
    length, mask = sample.get("response_length"), sample.get("loss_mask")
    tokens = sample.get("tokens")
    ids = of_mask(tokens[-length:], mask) if isinstance(tokens, list) and isinstance(length, int) and length else None
    answer, reward = sample.get("label"), sample.get("reward")
    extra = extra_of(sample.get("metadata") or {}, ()) | extra_of(sample, _OWN)
    if isinstance(reward, dict):  # which of them trains is an argument of the run
        extra |= extra_of(reward, ())
    return RecordedTrajectory(
        messages=messages_of(sample, "prompt", is_generated=False) + messages_of(sample, "response", "assistant"),
        reward=None if isinstance(reward, dict) else number_of(sample, "reward"),
        group=None if sample.get("group_index") is None else str(sample["group_index"]),
        answer=None if answer is None else str(answer),
        is_truncated=_ENDS.get(str(sample.get("status"))),
        num_tokens=sum(map(bool, mask)) if isinstance(mask, list) else length,
        token_ids=ids,
        log_probs=of_mask(sample.get("rollout_log_probs"), mask),
        extra=extra
        | {"status": str(sample.get("status")), "kind": "eval" if file.name.startswith("eval_") else "train"},
    )
