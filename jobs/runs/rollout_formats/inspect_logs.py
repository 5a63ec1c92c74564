"""Inspect: logs of evaluations, `.eval` or `.json`, by the reader of the package `inspect_ai`.

Source: `EvalSample` and `Score` of inspect_ai 0.3.285.
"""

import operator
import zipfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.rollout_formats.rollout_files import list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, with_rewards
from exgrpo.jobs.runs.rollout_formats.source import Part, RolloutSource, Sample, with_short_names
from exgrpo_core.recording.openai_messages import as_text, messages_of
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory

_FIELDS = {"id", "epoch", "input", "target", "messages", "scores", "model_usage", "error", "limit"}
_VERDICTS = {"C": "correct", "I": "wrong", "P": "partly correct", "N": "no answer"}
"""What scorers of Inspect mean by a letter."""
_LETTERS = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
_WORDS = {"yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
"""What a text counts in Inspect's own accuracy (`value_to_float`), words in any case."""


def recognises(sample: Sample) -> bool:
    """Whether it is a log: an archive with the start of an evaluation, or JSON with its first fields."""
    start = sample.head[:200]
    is_json = (
        start.startswith(b"{") and b'"version"' in start and b'"status"' in start and b'"eval"' in sample.head[:400]
    )
    return is_json or (sample.head.startswith(b"PK") and b"_journal/start.json" in sample.head)


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the samples of each log, all of step 0; the epochs of a sample are the rollouts of its group."""
    files = source.files(".eval", ".json")
    yield from source.rollouts(files, lambda row, _: [(0, _trajectory(row))], partial(_samples, source))


def parts(path: Path) -> list[Part]:
    """Return a part for each log, since Inspect has an accuracy for each."""
    return with_short_names(
        (_task(file), place, Part(place, has_file=partial(operator.eq, file)))
        for file in list_files(path)
        if file.suffix in {".eval", ".json"}
        for place in [file.relative_to(path).with_suffix("").as_posix()]
    )


def _task(file: Path) -> str:
    """Return the task of a log's name, which is `TIME_TASK_ID`."""
    return "_".join(file.stem.split("_")[1:-1]) or file.stem


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
    scores = dict(_scores(row))
    only = next(iter(scores.values())) if len(scores) == 1 else None
    numbers = {name: _number(value) if isinstance(value, str) else value for name, value in scores.items()}
    reward, columns = with_rewards(extra_of(numbers, ()), [*scores])
    if error := row.get("error"):
        columns["error"] = error.get("message")
    num_tokens = sum(usage.get("output_tokens") or 0 for usage in (row.get("model_usage") or {}).values())
    return RecordedTrajectory(
        messages=tuple(part for message in row["messages"] for part in _parts(message)),
        reward=reward,
        question_id=str(row["id"]),
        answer=as_text(row.get("target")) or None,
        verdict=_VERDICTS.get(only) if isinstance(only, str) else None,
        is_truncated=True if (row.get("limit") or {}).get("type") in {"token", "message", "context"} else None,
        num_tokens=num_tokens or None,
        extra=columns,
    )


def _number(text: str) -> str | float:
    """Return what Inspect counts a text as, the text itself if it is no number."""
    if text in _LETTERS:
        return _LETTERS[text]
    try:
        return _WORDS[text.lower()] if text.lower() in _WORDS else float(text)
    except ValueError:
        return text


def _scores(row: Row) -> Iterator[tuple[str, Any]]:
    """Yield the value of each scorer, and of one with several values each."""
    for name, score in (row.get("scores") or {}).items():
        value = (score or {}).get("value")
        if isinstance(value, dict):
            yield from ((f"{name}/{key}", part) for key, part in value.items())
        else:
            yield name, value
