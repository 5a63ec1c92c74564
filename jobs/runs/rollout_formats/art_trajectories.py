"""ART: the Parquet files of `trajectories/train` and `trajectories/val` of a model, one a step, a trajectory a row.

Source: `write_trajectory_groups_parquet` of openpipe-art 0.5.18. Metrics and metadata of a trajectory are JSON texts,
as are the tool calls of a message. The model wrote the messages that are trainable.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.rollout_formats.row_fields import Row, step_of, step_of_file
from exgrpo.jobs.runs.rollout_formats.source import Part, Rollouts, RolloutSource, Sample
from exgrpo.jobs.runs.rollout_formats.trackio_traces import of_metadata
from exgrpo_core.bounded_json import parse_json
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep


def recognises(sample: Sample) -> bool:
    """Whether there is a Parquet file with the columns of ART."""
    columns = {"group_index", "metrics", "metadata", "reward", "messages"}
    return any(columns <= row.keys() for row in sample.rows_of("*.parquet"))


def parts(_: Path) -> list[Part]:
    """Return two parts: the trajectories of `val` are a run of their own."""
    return [
        Part("-0", has_file=lambda file: file.parent.name != "val"),
        Part("-1", "evaluation", has_file=lambda file: file.parent.name == "val"),
    ]


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the trajectories of each file."""
    yield from source.rollouts(source.files(".parquet"), _made, source.parquet_rows)


def _made(row: Row, file: Path) -> Rollouts:
    messages = [message | {"tool_calls": _parsed(message.get("tool_calls"))} for message in row["messages"]]
    facts = {**_parsed(row["metrics"]), **_parsed(row["metadata"])}
    facts |= {"reward": row["reward"], "group": row["group_index"]}
    step = step_of({"step": step_of_file(file)}, "step")
    return [(step, of_metadata(messages_of({"messages": messages}, "messages"), facts))]


def _parsed(text: str | None) -> Any:  # noqa: ANN401 - any JSON value
    return parse_json(text) if text else {}
