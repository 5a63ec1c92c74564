"""lm-evaluation-harness: `samples_TASK_DATE.jsonl` of `--log_samples`, a question a line.

Source: `EvaluationTracker.save_results_samples` of lm-eval 0.4.13. Of a question with choices the response is the most
likely one.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory
from jobs.runs.rollout_formats.source import RolloutSource, Row, Sample, number_of

_FACTS = ("correct", "wrong")
_VERDICTS = ("exact_match", "acc")
"""Metrics that say whether the answer is right: 1 or 0."""


def recognises(sample: Sample) -> bool:
    """Whether rows have a document with the model's responses."""
    return any({"doc_id", "doc", "resps", "arguments"} <= row.keys() for row in sample.rows_of("*.jsonl"))


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the questions of each task, which are of step 0: an evaluation has no other."""
    yield from source.rollouts(source.files(".jsonl"), _of_question)


def _of_question(row: Row, file: Path) -> Iterator[tuple[int, RecordedTrajectory]]:
    task = file.stem.removeprefix("samples_").rpartition("_")[0]
    prompts = [list(given.values()) for given in row["arguments"].values()]
    responses = [response for responses in row["resps"] for response in responses]
    is_choice, target = isinstance(responses[0], list), row.get("target")
    if is_choice:
        best = max(range(len(responses)), key=lambda index: float(responses[index][0]))
        responses = [prompts[best][1]]
        target = prompts[int(str(target))][1] if str(target).isdecimal() and int(str(target)) < len(prompts) else target
    metrics = {name: value for name in row.get("metrics") or () if (value := _number(row, name)) is not None}
    verdict = next((_FACTS[1 - int(metrics[name])] for name in _VERDICTS if metrics.get(name) in {0, 1}), None)
    for response in responses:
        is_only = len(responses) == 1  # else the metrics are of all of them
        trajectory = RecordedTrajectory(
            messages=(*_prompt(prompts[0][0]), Message("assistant", str(response), is_generated=True)),
            reward=next(iter(metrics.values()), None) if is_only else None,
            question_id=f"{task}/{row['doc_id']}",
            answer=None if target is None else str(target).strip(),
            verdict=verdict if is_only else None,
            extra={**metrics, "task": task, "filter": row.get("filter"), "is_choice": is_choice},
        )
        yield 0, trajectory


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
