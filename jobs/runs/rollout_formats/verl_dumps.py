"""verl: what `trainer.rollout_data_dir` and `trainer.validation_data_dir` name, a file of JSON lines a step.

Source: `_write_generations` of verl 0.9.1 (`verl/trainer/ppo/v1/trainer_base.py`).
"""

from collections.abc import Iterator
from pathlib import Path

from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, number_of, step_of, text_of
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory

_OWN = ("input", "output", "gts", "score", "step", "uid", "acc")


def recognises(sample: Sample) -> bool:
    """Whether rows have a decoded prompt and response with a score."""
    return {"input", "output", "score"} <= sample.fields


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the rollouts of each file."""
    yield from source.rollouts(source.files(".jsonl"), lambda row, file: [(_step_of(row, file), _trajectory(row))])


def _step_of(row: Row, file: Path) -> int:
    return step_of({"step": file.stem, **row} if file.stem.isdecimal() else row, "step")


def _trajectory(row: Row) -> RecordedTrajectory:
    prompt, response, answer = text_of(row, "input"), text_of(row, "output"), row.get("gts")
    is_correct = row.get("acc")  # reward managers such as DAPO's say so
    return RecordedTrajectory(
        messages=(Message("user", prompt), Message("assistant", response, is_generated=True)),
        reward=number_of(row, "score"),
        group=_group_of(row.get("uid")),
        answer=None if answer is None else str(answer),
        verdict=("correct" if is_correct else "wrong") if is_correct in (0, 1) else None,
        extra=extra_of(row, _OWN),
    )


def _group_of(uid: object) -> str | None:
    """Return the question's part of `{question}_{rollout}_{output}`, which older dumps lack."""
    parts = uid.rsplit("_", 2) if isinstance(uid, str) else []
    return parts[0] if len(parts) == 3 else None
