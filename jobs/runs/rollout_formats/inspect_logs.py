"""Inspect: logs of evaluations, `.eval` or `.json`, by the reader of the package `inspect_ai`.

Source: `EvalSample` and `Score` of inspect_ai 0.3.285.
"""

import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from exgrpo_core.recording.openai_messages import as_text, messages_of
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory
from jobs.runs.rollout_formats.source import RolloutSource, Row, Sample

_FIELDS = {"id", "epoch", "input", "target", "messages", "scores", "model_usage", "error", "limit"}
_VERDICTS = {"C": "correct", "I": "wrong", "P": "partly correct", "N": "no answer"}
"""What scorers of Inspect mean by a letter."""


def recognises(sample: Sample) -> bool:
    """Whether it is a log: an archive with the start of an evaluation, or JSON with its first fields."""
    start = sample.head[:200]
    is_json = (
        start.startswith(b"{") and b'"version"' in start and b'"status"' in start and b'"eval"' in sample.head[:400]
    )
    return is_json or (sample.head.startswith(b"PK") and b"_journal/start.json" in sample.head)


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the samples of each log; the step is the epoch."""
    files = source.files(".eval", ".json")
    yield from source.rollouts(files, lambda row, _: [(int(row["epoch"]), _trajectory(row))], partial(_samples, source))


def _samples(source: RolloutSource, file: Path) -> Iterator[tuple[int, Row]]:
    from inspect_ai.log import read_eval_log_samples

    size, known = file.stat().st_size, source.num_rows(file)
    if size == source.position(file):
        return
    number = 0
    try:
        for number, sample in enumerate(read_eval_log_samples(str(file), all_samples_required=False), 1):
            if number > known:
                yield number, sample.model_dump(mode="json", include=_FIELDS)
    except (OSError, ValueError, KeyError, zipfile.BadZipFile) as error:
        source.bad.add(file, number + 1, f"expected a log of Inspect ({error}).")
    source.advance(file, size, max(number, known))


def _parts(message: Row) -> tuple[Message, ...]:
    return messages_of({"messages": [message]}, "messages", is_generated=message.get("source") != "input")


def _trajectory(row: Row) -> RecordedTrajectory:
    scores = {name: (score or {}).get("value") for name, score in (row.get("scores") or {}).items()}
    first = next(iter(scores.values()), None)
    num_tokens = sum(usage.get("output_tokens") or 0 for usage in (row.get("model_usage") or {}).values())
    return RecordedTrajectory(
        messages=tuple(part for message in row["messages"] for part in _parts(message)),
        reward=float(first) if isinstance(first, int | float) and not isinstance(first, bool) else None,
        question_id=str(row["id"]),
        answer=as_text(row.get("target")) or None,
        verdict=_VERDICTS.get(first) if isinstance(first, str) else None,
        is_truncated=True if (row.get("limit") or {}).get("type") in {"token", "message", "context"} else None,
        num_tokens=num_tokens or None,
        extra={**{name: value if isinstance(value, str | int | float) else as_text(value) for name, value in
                  scores.items()}, "error": (row.get("error") or {}).get("message")},
    )  # fmt: skip
