"""What passes the driver of the verl engine in a step, in bytes and seconds, at 1, 8, 128 and 1,024 simulated GPUs.

Run `.venv-verl/bin/python -m bench.verl_driver`; `--short` leaves the largest out. The driver is real: `exgrpo_step` on
the verl engine, TransferQueue with its processes, and a buffer with candidates of every question. A process of made-up
agent loops and workers puts and gets the rows and answers the blocks of as many ranks as there are GPUs; while it works
for them nothing is counted.

A GPU is simulated by its share of a step's rows (`docs/scale.md`). Responses are cut so that a step has about a million
tokens; what one more token costs is measured at two lengths, on fewer questions with as many rollouts and candidates
each, and the step of whole length is computed. All are medians. Seconds are those of processors, of driver and
TransferQueue together: each waits for the other. Recording is `bench.recording`'s.
"""

import argparse
import importlib
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bench.report import report
from exgrpo_core import ExGRPOState, exgrpo_step
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.process_memory import gc_paused
from exgrpo_core.types import Question, Trajectory
from tests.verl_on_cpu import VARIABLES

PROMPT_TOKENS = 100
STEP_SECONDS = 300.0
STEP_TOKENS = 1_000_000
"""About as many tokens of fresh rollouts has a measured step."""
TOKEN_LENGTHS = (50, 2000)
"""Mean lengths of responses at which the cost of a token is measured."""
TOKEN_ROWS = 2048
"""Rollouts of the step in which it is measured."""
NUM_MEASURED = 5
"""Steps of which each figure is the median."""
NUM_CANDIDATES = 16
"""Stored trajectories of each question."""
TARGETS = {"1024_gpus/share_of_300_s": "<= 0.05"}


@dataclass(frozen=True, slots=True)
class Size:
    """Questions a step, K and mean response tokens of a number of GPUs."""

    num_gpus: int
    num_questions: int
    num_rollouts: int
    num_tokens: int

    @property
    def num_rows(self) -> int:
        """Trajectories a step."""
        return self.num_questions * self.num_rollouts


SIZES = (Size(1, 16, 8, 2000), Size(8, 128, 8, 2000), Size(128, 512, 16, 4000), Size(1024, 2048, 32, 6000))


class Passed(NamedTuple):
    """What passed the driver in a step."""

    seconds: float
    cpu_seconds: float
    """Of the driver and of TransferQueue's processes: the seconds on a machine where they never wait for a core."""
    token_bytes: float
    other_bytes: float
    num_candidates: float


@contextmanager
def transfer_queue() -> Iterator[None]:
    """Start Ray and TransferQueue, and end both afterwards."""
    import ray
    import transfer_queue as tq

    with tempfile.TemporaryDirectory(prefix="exgrpo-ray-", ignore_cleanup_errors=True) as folder:
        ray.init(num_cpus=16, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder))
        try:
            tq.init()
            yield
        finally:
            tq.close()
            ray.shutdown()


def measure(size: Size, num_tokens: int) -> Passed:
    """Return what passes the driver in a step of this size with responses of so many tokens."""
    from bench.made_up_verl import DriverClock, MadeUpWork, PassedBytes, made_up_trainer
    from exgrpo_core.verl_plugin.engine import VerlEngine

    config = ExGRPOConfig(
        batch_size=size.num_questions,
        mini_batch_size=size.num_questions // 2,
        rollouts_per_question=size.num_rollouts,
        start_pass_rate=None,
    )
    with tempfile.TemporaryDirectory() as folder:
        state = ExGRPOState.create(Path(folder), _questions(2 * size.num_questions), config)
        _fill(state, num_tokens)
        clock = DriverClock()
        work = MadeUpWork(num_tokens, size.num_gpus, clock)
        engine = VerlEngine(made_up_trainer(work), [0], config, seed=0)
        try:
            before = clock.read()
            with PassedBytes(clock) as passed:
                metrics = exgrpo_step(state, engine, config).metrics
            seconds, cpu_seconds = (clock.read() - before).tolist()
        finally:
            work.close()
            state.replay_buffer.close()
    return Passed(seconds, cpu_seconds, passed.tokens, passed.others, metrics["replay/num_candidates"])


def medians(size: Size, num_tokens: int) -> Passed:
    """Return the medians of what passes in such steps."""
    measured = [measure(size, num_tokens) for _ in range(NUM_MEASURED)]
    return Passed(*np.median(np.array(measured), axis=0).tolist())


def _questions(number: int) -> list[Question]:
    prompt_ids = np.full(PROMPT_TOKENS, 3, dtype=np.int32)
    return [Question(i, str(i), prompt_ids, "made up", "1") for i in range(number)]


def _fill(state: ExGRPOState, num_tokens: int) -> None:
    """Store candidates of every question, in buckets 1 to K."""
    rng = np.random.default_rng(0)
    buffer = state.replay_buffer
    for question in state.questions:
        stored = [
            Trajectory(
                question.index,
                rng.integers(3, 50, num_tokens, dtype=np.int32),
                -rng.random(num_tokens, dtype=np.float32),
                1.0,
                trajectory_id=NUM_CANDIDATES * question.index + i,
                rollout_step=0,
            )
            for i in range(NUM_CANDIDATES)
        ]
        buffer.insert(stored)
        buffer.set_bucket(question.index, 1 + question.index % buffer.rollouts_per_question)


def figures_of(size: Size, passed: Passed, num_tokens: int, per_token: Passed) -> dict[str, float]:
    """Return what passes in a step of whole length, from a measured step and what one more token adds."""
    num_more = (size.num_rows + passed.num_candidates) * (size.num_tokens - num_tokens)
    seconds = passed.cpu_seconds + per_token.cpu_seconds * num_more
    figures = {
        "rows": size.num_rows,
        "candidates": passed.num_candidates,
        "measured_tokens": num_tokens,
        "measured_s": passed.seconds,
        "measured_cpu_s": passed.cpu_seconds,
        "cpu_s": seconds,
        "token_bytes": passed.token_bytes + per_token.token_bytes * num_more,
        "other_bytes": passed.other_bytes + per_token.other_bytes * num_more,
        "share_of_300_s": seconds / STEP_SECONDS,
        "token_cpu_ns": 1e9 * per_token.cpu_seconds,
        "token_bytes_each": per_token.token_bytes,
    }
    return {f"{size.num_gpus}_gpus/{name}": value for name, value in figures.items()}


def measure_token(size: Size) -> Passed:
    """Return what one more token adds, by the difference of two lengths of a step with as many rows a question."""
    fewer = Size(8, TOKEN_ROWS // size.num_rollouts, size.num_rollouts, size.num_tokens)
    short, long = (medians(fewer, num_tokens) for num_tokens in TOKEN_LENGTHS)
    num_more = (fewer.num_rows + long.num_candidates) * (TOKEN_LENGTHS[1] - TOKEN_LENGTHS[0])
    return Passed(*[max(0.0, high - low) / num_more for low, high in zip(short, long, strict=True)])


def main() -> None:
    """Measure each number of GPUs and print the table and the last line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--short", action="store_true", help="without 1,024 GPUs")
    sizes = SIZES[:-1] if parser.parse_args().short else SIZES
    os.environ.update(VARIABLES)
    with gc_paused():  # as in a run, whose collector never scans its imports
        importlib.import_module("bench.made_up_verl")
    figures: dict[str, float] = {}
    with transfer_queue():
        measure(SIZES[0], TOKEN_LENGTHS[0])  # the first step connects
        for size in sizes:
            num_tokens = min(size.num_tokens, STEP_TOKENS // size.num_rows)
            entry = figures_of(size, medians(size, num_tokens), num_tokens, measure_token(size))
            print(", ".join(f"{name} {value:.6g}" for name, value in entry.items()), flush=True)
            figures |= entry
    report("verl_driver", figures, TARGETS if sizes == SIZES else {})


if __name__ == "__main__":
    main()
