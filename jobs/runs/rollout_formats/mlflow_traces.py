"""MLflow: the traces of its SQLite file, or those of `Trace.to_json`, one a line; each experiment is a run.

Source: MLflow 3.18.0. A trace is a tree of spans. verl's agent loop is a rollout by itself; else the last span that
was given messages is the call of a model that has seen the whole conversation. Feedback is a reward by its name, an
expectation is an answer.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from exgrpo.db.connections.mlflow_files import has_mlflow_traces, open_mlflow
from exgrpo.jobs.runs.rollout_formats.rollout_files import bare, list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, step_of
from exgrpo.jobs.runs.rollout_formats.source import (
    WHOLE,
    Part,
    Rollouts,
    RolloutSource,
    Sample,
    SourceChangedError,
    with_evaluations,
    with_short_names,
)
from exgrpo.jobs.runs.rollout_formats.trackio_traces import of_metadata
from exgrpo.jobs.runs.rollout_formats.verl_calls import of_verl_call
from exgrpo_core.bounded_json import UnreadableFileError, parse_json
from exgrpo_core.recording.openai_messages import as_text, messages_of
from exgrpo_core.recording.rows import Message, RecordedStep

_ANSWERS = ("expected_response", "answer", "ground_truth")


def recognises(sample: Sample) -> bool:
    """Whether there is a SQLite file with traces, or a line is a trace."""
    lines = any({"info", "data"} <= row.keys() for row in sample.rows_of("*.jsonl"))
    return lines or any(map(_is_store, sample.files))


def parts(path: Path) -> list[Part]:
    """Return two parts for each experiment, because verl's traces of validation are a run of their own."""
    found = []
    for file in filter(_is_store, list_files(path)):
        with open_mlflow(file) as opened:
            for experiment, name in opened.experiments().items():
                key = f"{file.name if file != path else ''} {experiment}".strip()
                found.append((name, f"{name} {key}", Part(key, "", file.__eq__, partial(_is_of, experiment))))
    return with_evaluations(with_short_names(found) or [WHOLE], _is_evaluation)


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the trajectories of the traces that are new."""
    for file in source.files(".jsonl", ".db", ".sqlite"):
        if _is_store(file):
            yield from _stored(source, file)
        elif bare(file).suffix == ".jsonl":
            yield from source.rollouts([file], _made)


def _is_store(file: Path) -> bool:
    return file.suffix in {".db", ".sqlite"} and has_mlflow_traces(file)


def _is_of(experiment: int, row: Row) -> bool:
    return bool(row["experiment_id"] == experiment)


def _is_evaluation(row: Row) -> bool:
    return str(_tags(row).get("validate")) == "True"


def _stored(source: RolloutSource, file: Path) -> Iterator[RecordedStep]:
    """Yield the traces that are new; one in progress is read once it has ended, however many come after it."""
    last = source.position(file)
    try:
        with open_mlflow(file) as opened:
            if opened.newest() < last:
                raise SourceChangedError(f"{file} was overwritten while it was being read; open it again.")
            traces = list(opened.traces(last, source.waiting(file)))
    except UnreadableFileError as error:
        source.bad.add(file, 0, str(error))
        return
    yield from source.rollouts([file], _made, lambda _: (each for each in traces if not each[1]["is_in_progress"]))
    if traces:
        waiting = [number for number, trace in traces if trace["is_in_progress"]]
        source.advance(file, max(last, traces[-1][0]), waiting=waiting)


def _tags(row: Row) -> Row:
    info = row.get("info") or {}
    return {**(info.get("trace_metadata") or {}), **(info.get("tags") or {}), **(row.get("tags") or {})}


def _made(row: Row, _: Path) -> Rollouts:
    """Return the trajectory of a trace; one without a conversation has none."""
    tags = {name: value for name, value in _tags(row).items() if not name.startswith("mlflow.")}
    step = step_of({"step": 0, **tags}, "step")
    spans = [_span(given) for given in (row if "spans" in row else row["data"])["spans"]]
    if not spans:
        raise ValueError("spans: expected those of the trace, found none in this file; export it with Trace.to_json.")
    if loops := [made for inputs, output in spans for made in of_verl_call(inputs, output, tags)]:
        return [(step, made) for made in loops]
    asked = [span for span in spans if isinstance(span[0].get("messages"), list)]
    inputs, output = asked[-1] if asked else spans[0]
    prompt = {"messages": inputs["messages"]} if asked else {"messages": as_text(_only_value(inputs))}
    messages = (*messages_of(prompt, "messages"), *_reply(output))
    return [(step, of_metadata(messages, tags | _facts(row)))]


def _span(given: str | Row) -> tuple[Row, Any]:
    """Return what a span was given, {} without names, and its output."""
    span = parse_json(given) if isinstance(given, str) else given
    inputs, output = (
        parse_json(span["attributes"].get(f"mlflow.span{name}", "null")) for name in ("Inputs", "Outputs")
    )
    return inputs if isinstance(inputs, dict) else {"input": inputs} if inputs is not None else {}, output


def _only_value(inputs: Row) -> Any:  # noqa: ANN401 - any JSON value
    return next(iter(inputs.values())) if len(inputs) == 1 else inputs


def _reply(output: Any) -> tuple[Message, ...]:  # noqa: ANN401 - any JSON value
    """Return the message of an answer in the shape of OpenAI or Anthropic; another output is its text."""
    value = output["choices"][0]["message"] if isinstance(output, dict) and output.get("choices") else output
    if not isinstance(value, dict) or "content" not in value:
        value = {"content": as_text(value)}
    return messages_of({"reply": [{"role": "assistant", **value}]}, "reply")


def _facts(row: Row) -> Row:
    """Return the feedback and the expectation of a trace, as the metadata of a trace of Trackio have them."""
    feedback, expected = dict[str, Any](), dict[str, Any]()
    for name, kind, value in _of_store(row) if "assessments" in row else _of_json(row):
        (expected if kind == "expectation" else feedback)[name] = value
    numbers = {name: float(value) for name, value in feedback.items() if isinstance(value, bool | int | float)}
    texts = {name: value for name, value in feedback.items() if isinstance(value, str)}
    answer = next((as_text(expected[name]) for name in _ANSWERS if name in expected), None)
    total = {"reward": numbers.pop("reward")} if "reward" in numbers else {}
    return {**texts, **total, "rewards": numbers} | ({} if answer is None else {"answer": answer})


def _of_store(row: Row) -> Iterator[tuple[str, str, Any]]:
    return ((name, kind, parse_json(value)) for name, kind, value in row["assessments"])


def _of_json(row: Row) -> Iterator[tuple[str, str, Any]]:
    """Yield the assessments that have a value and were not replaced; lists and dictionaries are JSON in them."""
    for entry in row["info"].get("assessments") or ():
        kind = "expectation" if "expectation" in entry else "feedback"
        given = entry[kind]
        if entry.get("valid") is False:
            continue
        if "value" in given:
            yield entry["assessment_name"], kind, given["value"]
        elif "serialized_value" in given:
            yield entry["assessment_name"], kind, parse_json(given["serialized_value"]["value"])
