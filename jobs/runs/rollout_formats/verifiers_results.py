"""verifiers before its traces: `results.jsonl` of `vf-eval --save-results`, a rollout a line.

Source: `state_to_output` of verifiers 0.1.14.
"""

from collections.abc import Iterator

from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, number_of
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Sample
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep, RecordedTrajectory

_OWN = ("prompt", "completion", "reward", "answer", "example_id", "is_truncated", "is_completed")


def recognises(sample: Sample) -> bool:
    """Whether rows have a prompt and a completion of a numbered example."""
    return any({"example_id", "prompt", "completion", "reward"} <= row.keys() for row in sample.rows_of("*.jsonl"))


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the rollouts, which are of step 0: an evaluation has no other."""
    yield from source.rollouts(source.files(".jsonl"), lambda row, _: [(0, _trajectory(row))])


def _trajectory(row: Row) -> RecordedTrajectory:
    example, usage, is_truncated = row.get("example_id"), row.get("token_usage"), row.get("is_truncated")
    num_tokens = usage.get("output_tokens") if isinstance(usage, dict) else None
    return RecordedTrajectory(
        messages=messages_of(row, "prompt", is_generated=False) + messages_of(row, "completion", "assistant"),
        reward=number_of(row, "reward") if row.get("error") is None else None,  # a failed rollout is given 0
        question_id=None if example is None else str(example),
        answer=row["answer"] if isinstance(row.get("answer"), str) else None,
        is_truncated=is_truncated if isinstance(is_truncated, bool) else None,
        num_tokens=int(num_tokens) if isinstance(num_tokens, int | float) else None,
        extra=extra_of(row, _OWN),
    )
