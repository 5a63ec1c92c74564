"""Writers of samples that `make_samples.py` starts, each in the environment of its package."""

import gzip
import shutil
import tempfile
from pathlib import Path

FULL_CHUNK = 2
"""Episodes of a file that is full."""


def write_stream(folder, episodes):
    """Write episodes as prime-rl's `FileMonitor` does since September 2026, with what it learned of them later.

    prime-rl is not published as a package. The records are of verifiers, the files are packed by pyzstd as in its
    `ChunkedJsonl`: a full file is packed, the last one is plain, and each producer of annotations has a folder.
    """
    traces = folder / "monitors" / "file" / "traces"
    _write_chunks(traces / "stream", [episode.to_record() for episode in episodes])
    shipped, trained = [], []
    for episode in episodes[:-2]:  # the last two are not trained on
        [trace] = episode.traces
        num_tokens = sum(len(node.token_ids) for node in trace.nodes)
        own = [is_own for node in trace.nodes for is_own in node.mask]
        advantage = trace.rewards["is_right"].score - 0.5
        info = {"effective": True, "ship": {"step": 4, "time": 1.0}, "advantage": advantage}
        of_ship = {"index": 0, "advantages": [advantage if is_own else 0.0 for is_own in own]}
        shipped.append({"version": 1, "trace_id": trace.id, "info": info, "branches": [of_ship]})
        entropies = [0.0625 * index if is_own else None for index, is_own in zip(range(num_tokens), own, strict=True)]
        of_trainer = {"index": 0, "trainer_logprobs": [None] * num_tokens, "entropies": entropies}
        trained.append({"version": 1, "trace_id": trace.id, "info": {}, "branches": [of_trainer]})
    _write_chunks(traces / "annotations" / "orch", shipped)
    _write_chunks(traces / "annotations" / "trainer", trained)


def _write_chunks(folder, records):
    import orjson
    import pyzstd

    folder.mkdir(parents=True)
    index = b""
    for number, start in enumerate(range(0, len(records), FULL_CHUNK)):
        lines = [orjson.dumps(record, default=str) + b"\n" for record in records[start : start + FULL_CHUNK]]
        index += b"".join(b'{"chunk":%d}\n' % number for _ in lines)
        file = folder / f"{number:05d}.jsonl"
        if start + FULL_CHUNK >= len(records):
            file.write_bytes(b"".join(lines))
        else:
            with pyzstd.SeekableZstdFile(
                f"{file}.zst", "wb", level_or_option=3, max_frame_content_size=1 << 10
            ) as opened:
                opened.write(b"".join(lines))
    (folder.parent / f"{folder.name}.index.jsonl").write_bytes(index)


def make_trackio(folder):
    """A project with two runs, its sessions, Parquet files and export for a static page; TRL writes one."""
    import os

    work = tempfile.mkdtemp()
    os.environ["TRACKIO_DIR"] = work  # Trackio reads it when it is imported
    import numpy as np
    import trackio
    from trackio.sqlite_storage import SQLiteStorage
    from trl.experimental.async_grpo.async_grpo_trainer import log_rollout_traces
    from trl.experimental.async_grpo.async_rollout_worker import RolloutSample

    def sample(number, reward):
        prompt = [{"role": "user", "content": f"What is {number} + 3?"}]
        completion = [{"role": "assistant", "content": str(number + 3 if reward else 0)}]
        metrics = {"reward": reward, "reward_std": 0.5, "rewards/is_right": reward}
        ids, mask = np.arange(9), np.array([0] * 5 + [1] * 4)
        return RolloutSample(prompt, completion, ids, mask, np.zeros(9), reward - 0.5, 7, number, metrics)

    trackio.init(project="sums", name="by TRL")
    for step in (1, 2):
        trackio.log({"loss": 0.5 / step}, step=step)
        log_rollout_traces([sample(step, 1.0), sample(step, 0.0)], step, ["trackio"])
    trackio.finish()
    trackio.init(project="sums", name="own loop")
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"first": 2}'}}
    messages = [
        {"role": "system", "content": "Use the tool."}, {"role": "user", "content": "What is 2 + 3?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "5"}, {"role": "assistant", "content": "5"},
    ]  # fmt: skip
    trace = trackio.Trace(messages, {"reward": 0.75, "label": "easy", "rewards": {"is_right": 1.0, "is_short": 0.5}})
    trackio.log({"accuracy": 0.5, "sample": trace}, step=3)
    trackio.finish()
    (folder / "local").mkdir()
    (folder / "local" / "sums.db.gz").write_bytes(gzip.compress((Path(work) / "sums.db").read_bytes(), mtime=0))
    shutil.copytree(Path(work) / "traces", folder / "sessions")
    SQLiteStorage._dataset_import_attempted = True
    SQLiteStorage.export_to_parquet()
    (folder / "parquet").mkdir()
    for file in Path(work).glob("*.parquet"):
        shutil.copy(file, folder / "parquet")
    SQLiteStorage.export_for_static_space("sums", folder / "static")
