"""Sessions as the Hugging Face hub shows them: a JSON Lines file each, a header and then an entry a line.

Source: `agent_sessions.py` of Trackio 0.43.0, which writes the session format of Pi, version 3. Trackio has a folder
for each run, and puts the step and the metadata of a trace into the header. An entry names the one before it.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.rollout_formats.rollout_files import bare, list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, step_of
from exgrpo.jobs.runs.rollout_formats.source import (
    Part,
    Rollouts,
    RolloutSource,
    Sample,
    SourceChangedError,
    with_short_names,
)
from exgrpo.jobs.runs.rollout_formats.trackio_traces import of_metadata
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import RecordedStep


def recognises(sample: Sample) -> bool:
    """Whether the first JSON Lines file begins with the header of a session."""
    return bool(sample.rows) and _is_header(sample.rows[0])


def parts(path: Path) -> list[Part]:
    """Return a part for each folder that has sessions."""
    folders = dict.fromkeys(file.parent for file in list_files(path) if bare(file).suffix == ".jsonl")
    places = {folder: folder.relative_to(path).as_posix() if path.is_dir() else "" for folder in folders}
    return with_short_names(
        (folder.name, place, Part(place, "", partial(_is_in, folder))) for folder, place in places.items()
    )


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield a trajectory for each session.

    Raises:
        SourceChangedError: A session that was read has become longer.
    """
    for file in source.files(".jsonl"):
        was_read = source.position(file)
        rows = [row for _, row in source.json_rows(file)]
        if was_read and rows:
            raise SourceChangedError(f"{file} has become longer since it was read; open it again.")
        if rows:
            yield from _of_file(source, file, rows)


def _of_file(source: RolloutSource, file: Path, rows: list[Row]) -> Iterator[RecordedStep]:
    return source.rollouts([file], _session, lambda _: [(1, {"entries": rows})])


def _is_in(folder: Path, file: Path) -> bool:
    return file.parent == folder


def _is_header(row: Row) -> bool:
    return row.get("type") == "session" and row.get("version") is not None


def _session(row: Row, _: Path) -> Rollouts:
    header, *entries = row["entries"]
    if not _is_header(header):
        raise ValueError("expected the header of a session.")
    of_trace = header.get("trackio") or {}
    messages = [_message(entry["message"]) for entry in _path(entries) if entry.get("type") == "message"]
    key = of_trace.get("key")
    trajectory = of_metadata(messages_of({"messages": messages}, "messages"), of_trace.get("metadata") or {}, key)
    return [(step_of({"step": 0, **of_trace}, "step"), trajectory)]


def _path(entries: list[Row]) -> list[Row]:
    """Return the entries that lead to the last one: a session that was taken up again at an earlier one has others."""
    by_id, found = {entry.get("id"): entry for entry in entries}, []
    current = entries[-1].get("id") if entries else None
    while (entry := by_id.pop(current, None)) is not None:
        found.append(entry)
        current = entry.get("parentId")
    return found[::-1]


def _message(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message of Pi as one in OpenAI's shape."""
    if message["role"] == "toolResult":
        facts = {"name": message.get("toolName"), "is_error": message.get("isError")}
        return {"role": "tool", "content": message.get("content"), **facts}
    content = message.get("content")
    if isinstance(content, list):
        content = [_block(block) if isinstance(block, dict) else block for block in content]
    return {"role": message["role"], "content": content}


def _block(block: dict[str, Any]) -> dict[str, Any]:
    is_call = block.get("type") == "toolCall"
    return {**block, "type": "tool_use", "input": block.get("arguments")} if is_call else block
