"""lm-evaluation-harness: `samples_TASK_DATE.jsonl` of `--log_samples`, a question a line.

Source: `EvaluationTracker.save_results_samples` of lm-eval 0.4.13. Of a question with choices the response is the most
likely one.
"""

import json
import operator
from collections.abc import Iterator
from functools import lru_cache, partial
from pathlib import Path

from exgrpo.jobs.runs.rollout_formats.rollout_files import bare, list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, number_of
from exgrpo.jobs.runs.rollout_formats.source import Part, RolloutSource, Sample, with_short_names
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory
from exgrpo_core.types import PART_PREFIX

_FACTS = ("correct", "wrong")
_NO_FILTER = "none"
"""What lm-eval calls a task's only filter, which takes the response as it is."""
_VERDICTS = ("exact_match", "acc")
"""Metrics that say whether the answer is right: 1 or 0."""


def recognises(sample: Sample) -> bool:
    """Whether rows have a document with the model's responses."""
    return any({"doc_id", "doc", "resps", "arguments"} <= row.keys() for row in sample.rows_of("*.jsonl"))


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the questions of each task, which are of step 0: an evaluation has no other."""
    yield from source.rollouts(source.files(".jsonl"), _of_question)


def parts(path: Path) -> list[Part]:
    """Return a part for each file, which is a task's, and filter of answers, as lm-eval has a score for each."""
    return with_short_names(
        found for file in list_files(path) if bare(file).suffix == ".jsonl" for found in _parts(path, file)
    )


def _parts(path: Path, file: Path) -> Iterator[tuple[str, str, Part]]:
    place, stat = file.relative_to(path).as_posix(), file.stat()
    filters = _filters(file, stat.st_size, stat.st_mtime_ns)
    for name in filters:
        shown = "" if name == _NO_FILTER else f" {name}"
        part = Part(f"{place} {name}", "", partial(operator.eq, file), partial(_is_of, name, name == filters[0]))
        yield f"{_task(file)}{shown}", f"{place}{shown}", part


def _is_of(name: str, is_first: bool, row: Row) -> bool:
    """Return whether a row is of a filter; the first one has what is of none, such as rows that are not of lm-eval."""
    given = row.get("filter")
    return given == name or (is_first and not isinstance(given, str))


@lru_cache(maxsize=1000)
def _filters(file: Path, _size: int, _changed_at: int) -> tuple[str, ...]:
    found = dict.fromkeys(row.get("filter") for _, row in RolloutSource(file).json_rows(file))
    return tuple(name for name in found if isinstance(name, str)) or (_NO_FILTER,)


def _task(file: Path) -> str:
    return bare(file).stem.removeprefix("samples_").rpartition("_")[0]


def _of_question(row: Row, file: Path) -> Iterator[tuple[int, RecordedTrajectory]]:
    task = _task(file)
    prompts = [list(given.values()) for given in row["arguments"].values()]
    responses = [response for responses in row["resps"] for response in responses]
    is_choice, target = isinstance(responses[0], list), row.get("target")
    if is_choice:
        best = max(range(len(responses)), key=lambda index: float(responses[index][0]))
        responses = [prompts[best][1]]
        target = prompts[int(str(target))][1] if str(target).isdecimal() and int(str(target)) < len(prompts) else target
    names = row.get("metrics", _VERDICTS) or ()  # older versions name none
    metrics = {name: value for name in names if (value := _number(row, name)) is not None}
    verdict = next((_FACTS[1 - int(metrics[name])] for name in _VERDICTS if metrics.get(name) in {0, 1}), None)
    main = next((name for name in _VERDICTS if name in metrics), next(iter(metrics)) if len(metrics) == 1 else "")
    for response in responses:
        is_only = len(responses) == 1  # else the metrics are of all of them
        trajectory = RecordedTrajectory(
            messages=(*_prompt(prompts[0][0]), Message("assistant", str(response), is_generated=True)),
            reward=metrics.get(main) if is_only else None,  # of several metrics none is a total
            question_id=f"{task}/{row['doc_id']}",
            answer=None if target is None else str(target).strip(),
            verdict=verdict if is_only else None,
            extra={**_columns(metrics), "task": task, "filter": row.get("filter"), "is_choice": is_choice},
        )
        yield 0, trajectory


def _columns(metrics: dict[str, float]) -> dict[str, float]:
    return metrics if len(metrics) == 1 else {f"{PART_PREFIX}{name}": value for name, value in metrics.items()}


def _prompt(given: str) -> tuple[Message, ...]:
    """Return the prompt, which is JSON where the model was given messages."""
    if given.startswith("[{"):
        try:
            return messages_of({"prompt": json.loads(given)}, "prompt", is_generated=False)
        except ValueError:
            pass
    return (Message("user", given),)


def _number(row: Row, name: str) -> float | None:
    return number_of(row, name) if isinstance(row.get(name), int | float) else None
