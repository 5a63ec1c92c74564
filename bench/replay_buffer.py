"""Experience management at the paper's size: host time of a step, memory, snapshot and restore of the replay buffer.

A step stores the successes of 1,024 rollouts (128 questions, K = 8) with the duplicate check, moves and retires their
questions, draws 64 questions and reads all their stored trajectories, with the calls of Algorithm 1. The
buffer's thread writes while the loop continues; its time is a separate figure.
Making up the load is outside the clock. Each load is built by one process and measured by another, fresh one, while the
page cache has what was written, as it has in a run; reads without that are measured last and apart (`cold_read_ms`).

Run `python -m bench.replay_buffer`; `--short` has a twentieth of the questions and trajectories, so as many a question;
`--times-ten` adds two, four and ten times the load (it needs 10 GB of disk).
"""

import argparse
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from bench.report import report
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.methods.columns import QuestionColumns
from exgrpo_core.methods.loading import QUESTIONS, build_part
from exgrpo_core.types import Trajectory

K = 8
CONFIG = ExGRPOConfig(rollouts_per_question=K)
BATCH_SIZE = 128
NUM_REPLAYED = 64
MEAN_TOKENS = 600
MAX_TOKENS = 8192
NUM_SNAPSHOTS = 15
NUM_COLD_READS = 5
SNAPSHOT = "buffer.snapshot"
SEGMENTS = "segments"


@dataclasses.dataclass(frozen=True, slots=True)
class Load:
    """One buffer to measure. All trajectories belong to `num_active` of the questions: fewer of them, more to read."""

    name: str
    num_questions: int
    num_active: int
    num_trajectories: int
    num_steps: int


def loads(is_short: bool, is_times_ten: bool) -> list[Load]:
    """Return the loads: about 290 and about 1,140 candidates a step, and ten times as much."""
    scale = 0.05 if is_short else 1.0
    questions, trajectories = int(45_000 * scale), int(200_000 * scale)
    steps = 20 if is_short else 200
    chosen = [
        Load("290", questions, questions, trajectories, steps),
        # The buffer grows by a third in the steps, and candidates with it: a little fewer at first, 1,140 on average.
        Load("1140", questions, round(questions / 3.45), trajectories, steps),
    ]
    if is_times_ten:
        chosen += [
            Load(f"290_times_{name}", times * questions, times * questions, times * trajectories, steps)
            for name, times in (("two", 2), ("four", 4), ("ten", 10))
        ]
    return chosen


def anonymous_mib() -> float:
    """Return this process's anonymous resident memory, MiB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("RssAnon"))) / 1024


def percentiles(seconds: list[float]) -> tuple[float, float, float]:
    """Return median, 95th percentile and maximum in milliseconds."""
    return tuple(float(value) * 1e3 for value in np.quantile(seconds, (0.5, 0.95, 1.0)))  # type: ignore[return-value]


class Rollouts:
    """Makes up trajectories: ragged lengths (lognormal, cut at 8,192 tokens), token ids of a 151 k vocabulary."""

    def __init__(self, num_active: int, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._num_active = num_active
        self._token_pool = self._rng.integers(0, 151_000, 1 << 20, dtype=np.int32)
        self._log_prob_pool = -self._rng.random(1 << 20, dtype=np.float32)
        self._next_id = 0

    def trajectory(self, question_index: int, step: int) -> Trajectory:
        """Return a new success of a question."""
        length = int(np.clip(self._rng.lognormal(np.log(MEAN_TOKENS) - 0.32, 0.8), 16, MAX_TOKENS))
        start = int(self._rng.integers(self._token_pool.size - length))
        self._next_id += 1
        tokens = self._token_pool[start : start + length].copy()
        return Trajectory(
            question_index,
            tokens,
            self._log_prob_pool[start : start + length].copy(),
            1.0,
            trajectory_id=self._next_id,
            rollout_step=step,
        )

    def step(self, step: int) -> list[tuple[int, list[Trajectory]]]:
        """Return (question, successes) of one step: 3 of 8 correct, one question in 30 solved, some duplicates."""
        questions = self._rng.choice(self._num_active, BATCH_SIZE, replace=False)
        num_correct = self._rng.binomial(K, 0.39, BATCH_SIZE)
        num_correct[self._rng.random(BATCH_SIZE) < 1 / 30] = K
        groups = []
        for question_index, count in zip(questions.tolist(), num_correct.tolist(), strict=True):
            trajectories = [self.trajectory(question_index, step) for _ in range(count)]
            if count > 1 and self._rng.random() < 0.1:
                trajectories[-1] = dataclasses.replace(trajectories[0], trajectory_id=trajectories[-1].trajectory_id)
            groups.append((question_index, trajectories))
        return groups


def build(load: Load, folder: Path) -> None:
    """Fill a buffer with the load and leave its segments and a snapshot in `folder`."""
    rollouts = Rollouts(load.num_active, seed=1)
    rng = np.random.default_rng(2)
    buffer = ReplayBuffer(folder / SEGMENTS, load.num_questions, K)
    owners = rng.permutation(
        np.concatenate(
            (np.arange(load.num_active), rng.integers(0, load.num_active, load.num_trajectories - load.num_active))
        )
    )
    for start in range(0, owners.size, 4096):
        buffer.insert([rollouts.trajectory(int(owner), 0) for owner in owners[start : start + 4096]])
    for question_index in range(load.num_active):
        buffer.set_bucket(question_index, int(rng.integers(1, K)))
    buffer.seal()
    buffer.snapshot(folder / SNAPSHOT)


def manage(
    buffer: ReplayBuffer, groups: list[tuple[int, list[Trajectory]]], step: int, rng: np.random.Generator
) -> int:
    """Do one step's experience management and return how many candidates were read."""
    draw = build_part(QUESTIONS, CONFIG).draw(QuestionColumns(buffer, step), NUM_REPLAYED, rng)
    buffer.record_draws(draw.question_indices, step)
    rows = np.concatenate([buffer.rows_of(question_index) for question_index in draw.question_indices.tolist()])
    num_candidates = len(buffer.experiences(rows))
    buffer.record_entropies(rows, np.zeros(rows.size, dtype=np.float32))
    solved = [question_index for question_index, successes in groups if len(successes) == K]
    for question_index in solved:
        buffer.retire(question_index)
    stored = [(question_index, successes) for question_index, successes in groups if len(successes) < K]
    buffer.insert([trajectory for _, successes in stored for trajectory in successes])
    for question_index, successes in stored:
        if buffer.bucket_of(question_index) is not None:
            buffer.set_bucket(question_index, len(successes))
    return num_candidates


def timed(action: Callable[[], object], times: int) -> list[float]:
    """Return the seconds of each call."""
    seconds = []
    for _ in range(times):
        start = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - start)
    return seconds


def measure_steps(load: Load, folder: Path) -> dict[str, float]:
    """Restore the load and run steps on it: host milliseconds a step, candidates read, memory, snapshot."""
    rollouts = Rollouts(load.num_active, seed=3)
    rng = np.random.default_rng(4)
    before = anonymous_mib()
    start = time.perf_counter()
    buffer = ReplayBuffer.restore(folder / SEGMENTS, folder / SNAPSHOT)
    restore_ms = (time.perf_counter() - start) * 1e3
    after_restore = anonymous_mib() - before
    seconds, cpu_seconds, disk_seconds, candidates = [], [], [], []
    for step in range(1, load.num_steps + 1):
        groups = rollouts.step(step)
        start, cpu_start = time.perf_counter(), time.process_time()
        candidates.append(manage(buffer, groups, step, rng))
        seconds.append(time.perf_counter() - start)
        cpu_seconds.append(time.process_time() - cpu_start)
        newest = max(buffer.rows_of(question_index).max(initial=0) for question_index, _ in groups)
        start = time.perf_counter()
        buffer.experiences(np.array([newest]))
        disk_seconds.append(time.perf_counter() - start)
    memory = anonymous_mib() - before
    path = folder / "again.snapshot"
    snapshot_ms = percentiles(timed(lambda: buffer.snapshot(path), NUM_SNAPSHOTS))
    step_ms = percentiles(seconds)
    return {
        "restore_ms": restore_ms,
        "step_ms_median": step_ms[0],
        "step_ms_p95": step_ms[1],
        "step_ms_max": step_ms[2],
        "step_cpu_ms_median": percentiles(cpu_seconds)[0],
        "disk_ms_median": percentiles(disk_seconds)[0],
        "candidates": float(np.mean(candidates)),
        "memory_mib_restored": after_restore,
        "memory_mib": memory,
        "snapshot_ms_median": snapshot_ms[0],
        "snapshot_ms_max": snapshot_ms[2],
        "snapshot_mb": path.stat().st_size / 1e6,
        "bytes_per_token": stored_bytes(folder) / buffer.num_tokens,
    }


def stored_bytes(folder: Path) -> int:
    """Return the disk space of all segments."""
    return sum(path.stat().st_blocks * 512 for path in (folder / SEGMENTS).iterdir())


def measure_cold_reads(load: Load, folder: Path) -> dict[str, float]:
    """Return the milliseconds of one step's reads with the segments thrown out of the page cache."""
    rng = np.random.default_rng(load.num_active)
    seconds, candidates = [], []
    for _ in range(NUM_COLD_READS):
        buffer = ReplayBuffer.restore(folder / SEGMENTS, folder / SNAPSHOT)
        questions = (
            build_part(QUESTIONS, CONFIG).draw(QuestionColumns(buffer, 1), NUM_REPLAYED, rng).question_indices.tolist()
        )
        rows = np.concatenate([buffer.rows_of(question_index) for question_index in questions])
        for path in (folder / SEGMENTS).glob("*.trajectories"):
            forget_pages(path)
        start = time.perf_counter()
        candidates.append(len(buffer.experiences(rows)))
        seconds.append(time.perf_counter() - start)
        buffer.close()
    return {"cold_read_ms": percentiles(seconds)[0], "cold_candidates": float(np.mean(candidates))}


def forget_pages(path: Path) -> None:
    """Drop a file's clean pages from the page cache."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def in_fresh_process(action: str, load: Load, folder: Path) -> dict[str, float]:
    """Run one action in a separate process and return its figures."""
    command = [sys.executable, "-m", "bench.replay_buffer", "--action", action, "--folder", str(folder)]
    command += ["--load", json.dumps(dataclasses.asdict(load))]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    figures: dict[str, float] = json.loads(output)
    return figures


def measure(load: Load, parent: Path) -> dict[str, float]:
    """Build one load, measure it and remove it."""
    with tempfile.TemporaryDirectory(dir=parent) as name:
        folder = Path(name)
        start = time.perf_counter()
        in_fresh_process("build", load, folder)
        figures = {"build_seconds": time.perf_counter() - start}
        figures |= in_fresh_process("steps", load, folder)
        return figures | in_fresh_process("cold", load, folder)


ACTIONS = {"cold": measure_cold_reads, "steps": measure_steps}
SNAPSHOT_TARGETS = {"snapshot_ms_median": "<= 10", "snapshot_mb": "<= 2", "restore_ms": "<= 100"}
TARGETS = {
    "290": {"step_ms_median": "<= 8", "step_ms_p95": "<= 16", "memory_mib": "<= 24", "bytes_per_token": "<= 8.5"}
    | SNAPSHOT_TARGETS,
    "1140": {"step_ms_median": "<= 15", "step_ms_p95": "<= 30", "cold_read_ms": "<= 30"},
    "290_times_ten": {
        "memory_mib": "<= 64",
        "snapshot_ms_median": "<= 40",
        "snapshot_mb": "<= 12",
        "restore_ms": "<= 1000",
    },
}


def print_table(results: dict[str, dict[str, float]]) -> None:
    """Print one column a load."""
    print(f"{'':24}" + "".join(f"{name:>16}" for name in results))
    for key in next(iter(results.values())):
        print(f"{key:24}" + "".join(f"{figures[key]:16.2f}" for figures in results.values()))


def main() -> int:
    """Measure all loads and print the table and the result; 0 whether or not the targets were met."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", action="store_true", help="a twentieth of the questions and trajectories, 20 steps")
    parser.add_argument("--times-ten", action="store_true", help="twice to ten times the load (10 GB of disk)")
    parser.add_argument("--folder", type=Path, help="where to put the segments; default: the system's temporary one")
    parser.add_argument("--action", choices=["build", *ACTIONS], help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.action:
        load = Load(**json.loads(arguments.load))
        if arguments.action == "build":
            build(load, arguments.folder)
        figures = ACTIONS[arguments.action](load, arguments.folder) if arguments.action in ACTIONS else {}
        print(json.dumps(figures))
        return 0
    chosen = loads(arguments.short, arguments.times_ten)
    for load in chosen:
        size = f"{load.num_trajectories:,} trajectories of {load.num_active:,} questions, {load.num_steps} steps"
        print(f"{load.name}: {size}")
    results = {load.name: measure(load, arguments.folder) for load in chosen}
    print_table(results)
    figures = {f"{name}/{key}": value for name, result in results.items() for key, value in result.items()}
    targets = {f"{name}/{key}": target for name in results for key, target in TARGETS.get(name, {}).items()}
    if arguments.times_ten:
        ratio = results["290_times_ten"]["step_ms_median"] / results["290"]["step_ms_median"]
        figures["times_ten/step_ratio"] = ratio
        targets["times_ten/step_ratio"] = "<= 2"
    report("replay_buffer", figures, targets)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
