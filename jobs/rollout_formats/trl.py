"""TRL: the Parquet files that `log_completions=True` writes below `completions/`, one a logged step.

Source: `GRPOTrainer.log` of TRL 1.16.0. Each reward function has a column, as has each name of `log_extra`. Nothing
says how the rewards are weighted, so that a total is known only where there is one.
"""

import math
from collections.abc import Iterable, Iterator

from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory
from jobs.rollout_formats.source import RolloutSource, Row, Sample, extra_of, in_parts, number_of, step_of

_OWN = ("step", "prompt", "completion", "advantage")


def recognises(sample: Sample) -> bool:
    """Whether it is Parquet with the columns of TRL."""
    return sample.head.startswith(b"PAR1") and set(_OWN) <= sample.fields


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the completions of each file."""
    yield from in_parts(_trajectories(source))


def _trajectories(source: RolloutSource) -> Iterator[tuple[int, RecordedTrajectory]]:
    for file in source.files(".parquet"):
        for number, row in source.parquet_rows(file):
            try:
                yield step_of(row, "step"), _trajectory(row)
            except ValueError as error:
                source.bad.add(file, number, str(error))


def _trajectory(row: Row) -> RecordedTrajectory:
    return RecordedTrajectory(
        messages=messages_of(row, "prompt", is_generated=False) + messages_of(row, "completion", "assistant"),
        reward=only_reward(row, _OWN),
        advantage=number_of(row, "advantage"),
        extra=extra_of(row, _OWN),
    )


def only_reward(row: Row, others: Iterable[str]) -> float | None:
    """Return the one number among the columns of reward functions, None where several gave one.

    NaN means that a function does not apply to the row.
    """
    left_out = {*others}
    rewards = [value for name, value in row.items() if name not in left_out and isinstance(value, float)]
    finite = [reward for reward in rewards if math.isfinite(reward)]
    return finite[0] if len(finite) == 1 else None
