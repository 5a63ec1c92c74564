"""TRL: the Parquet files that `log_completions=True` writes below `completions/`, one a logged step, or their tables.

Source: `GRPOTrainer.log` of TRL 1.16.0. Each reward function has a column, as has each name of `log_extra`. Nothing
says how the rewards are weighted, so that a total is known only where there is one. A table is logged again under
another step until the next generation.
"""

import json
from collections.abc import Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from zlib import crc32

import pyarrow as pa
import pyarrow.parquet as pq

from exgrpo.jobs.runs.rollout_formats.rollout_files import list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import NO_REWARDS, Row, extra_of, number_of, step_of, with_rewards
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory

_OWN = ("step", "prompt", "completion", "advantage")


def recognises(sample: Sample) -> bool:
    """Whether it is Parquet with the columns of TRL."""
    return sample.head.startswith(b"PAR1") and set(_OWN) <= sample.fields


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the completions of each file."""
    files = source.files(".parquet")
    known = [file for file in list_files(source.path) if file.suffix == ".parquet"] if files else []
    before = {file: other for other, file in pairwise(known) if file.parent == other.parent}
    for file in files:
        if file in before and source.is_new(file) and _are_alike(before[file], file):
            source.advance(file, file.stat().st_size)
            continue
        yield from source.rollouts([file], partial(_made, _reward_columns(file)), source.parquet_rows)


def _are_alike(*files: Path) -> bool:
    """Whether files differ only in the step."""
    try:
        return len({checksum(pq.read_table(file).to_pylist()) for file in files}) == 1
    except (OSError, pa.ArrowException):
        return False


def checksum(rows: list[Row]) -> int:
    """Return a checksum of a table without its steps."""
    return crc32(json.dumps([row | {"step": None} for row in rows], default=str).encode())


def of_table(rows: list[Row]) -> list[tuple[int, RecordedTrajectory]]:
    """Return the rollouts of a table that the trainer logged; the table of another program has none."""
    if not all({*_OWN} <= {*row} for row in rows):
        return []
    numbers = {name for row in rows for name, value in row.items() if type(value) in {int, float}}
    rewards = [name for name in rows[0] if name in numbers and _is_reward(name)] if rows else []
    return [(step_of(row, "step"), _trajectory(row, rewards)) for row in rows]


def _made(rewards: list[str], row: Row, _: Path) -> list[tuple[int, RecordedTrajectory]]:
    return [(step_of(row, "step"), _trajectory(row, rewards))]


def _reward_columns(file: Path) -> list[str]:
    """Return the columns of numbers, which may be a reward function's.

    A function that applied to no row has NaN in a column of numbers. A column of type null is one of `log_extra`.
    """
    try:
        schema = pq.read_schema(file)
    except (OSError, pa.ArrowException):
        return []
    are_numbers = (pa.types.is_floating, pa.types.is_integer, pa.types.is_decimal)
    numbers = [field.name for field in schema if any(is_number(field.type) for is_number in are_numbers)]
    return [name for name in numbers if _is_reward(name)]


def _is_reward(name: str) -> bool:
    return name not in _OWN and name not in NO_REWARDS


def _trajectory(row: Row, rewards: list[str]) -> RecordedTrajectory:
    reward, extra = with_rewards(extra_of(row, _OWN), rewards)  # NaN means that a function does not apply to the row
    return RecordedTrajectory(
        messages=messages_of(row, "prompt", is_generated=False) + messages_of(row, "completion", "assistant"),
        reward=reward,
        advantage=number_of(row, "advantage"),
        extra=extra,
    )
