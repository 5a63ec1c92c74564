"""Trackio: the traces and metrics of its projects, each run a run of its own.

Source: Trackio 0.43.0. A project is `NAME.db`, a SQLite file. Exports of it are
`NAME_traces.parquet` with `NAME.parquet`, and `aux/traces.parquet` with `metrics.parquet` for a static page; without
traces there is only the file of the metrics, which holds tables too.
`log_rollout_traces` of TRL 1.16.0 writes the reward, the advantage and the group into a trace's metadata. Its
`GRPOTrainer.log` writes a table among the metrics, and the last one again until the next generation or the end.
"""

import math
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from exgrpo.db.connections.trackio_files import COLUMNS, LOG, has_traces, open_project
from exgrpo.jobs.runs.rollout_formats import trl
from exgrpo.jobs.runs.rollout_formats.rollout_files import list_files
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, extra_of, number_of, step_of, with_rewards
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
from exgrpo.jobs.runs.rollout_formats.verl_calls import is_verl_call, of_verl_call
from exgrpo_core.bounded_json import UnreadableFileError, parse_json
from exgrpo_core.recording.openai_messages import messages_of
from exgrpo_core.recording.rows import Message, RecordedStep, RecordedTrajectory

_ANSWERS = ("answer", "ground_truth")
_TOTALS = ("reward", "score")
_KNOWN = (*_ANSWERS, "reward", "rewards", "advantage", "group", "group_id", "completion_tokens")
_REWARD = "rewards/"
_STEP_OF_TRAINER = "train/global_step"
"""What transformers logs with its numbers: Trackio's own step counts the calls of `log`."""
_OF_METRICS = frozenset({"id", "run_id", "run_name", "timestamp", "step", "log_id", "space_id"})


def recognises(sample: Sample) -> bool:
    """Whether there is a file with Trackio's table of traces."""
    return bool(_projects(sample.files))


def parts(path: Path) -> list[Part]:
    """Return a part for each run of each project."""
    found = []
    for file in _projects(list_files(path)):
        of_project = {file, file.with_name(file.name + LOG), _metrics_file(file)}
        for run_id, name in _runs(file).items():
            place = "" if file == path else f"{file.relative_to(path).as_posix()} "
            part = Part(f"{place}{run_id}", "", of_project.__contains__, partial(_is_of, run_id))
            found.append((name, f"{place}{name} {run_id[:6]}", part))
    return with_evaluations(with_short_names(found), _is_evaluation) or [WHOLE]


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the metrics and traces that are new."""
    changed = {file.with_name(file.name.removesuffix(LOG)) for file in source.files()}
    for file in _projects(list_files(source.path)):
        if file.suffix == ".db" and file in changed:
            yield from _new_rows(source, file)
        elif file in changed:
            if (metrics := _metrics_file(file)) in changed:
                yield from _exported(source, metrics)
            if file != metrics:
                yield from source.rollouts([file], _trace, source.parquet_rows)


def _projects(files: list[Path]) -> list[Path]:
    """Return the files with traces, and those of metrics without them.

    An export next to its own project's SQLite file is left out.
    """
    found = [file for file in files if file.suffix == ".db" and has_traces(file)]
    named = [file for file in files if file.name == "traces.parquet" or file.name.endswith("_traces.parquet")]
    exports = [file for file in named if _has_columns(file, COLUMNS)]
    with_traces = {*map(_metrics_file, exports)}
    exports += [file for file in files if file not in with_traces and _holds_metrics(file)]
    return found + [file for file in exports if _metrics_file(file).with_suffix(".db") not in found]


def _holds_metrics(file: Path) -> bool:
    """Whether a file is an export of metrics, as the export of settings says that Trackio writes next to it."""
    settings = file.with_name(f"{file.stem}_configs.parquet"), file.parent / "aux" / "configs.parquet"
    return settings[file.name == "metrics.parquet"].exists() and _has_columns(file, _OF_METRICS - {"space_id"})


def _metrics_file(file: Path) -> Path:
    if file.name == "traces.parquet":
        return file.parent.parent / "metrics.parquet"
    return file.with_name(f"{file.stem.removesuffix('_traces')}.parquet")


def _has_columns(file: Path, columns: frozenset[str]) -> bool:
    try:
        return {*pq.read_schema(file).names} >= columns
    except (OSError, pa.ArrowException):
        return False


def _runs(file: Path) -> dict[str, str]:
    """Return the names of a project's runs by their ids, those that have only metrics too."""
    try:
        if file.suffix == ".db":
            with open_project(file) as project:
                return project.runs()
        files = [each for each in (file, _metrics_file(file)) if each.exists()]
        tables = [pq.read_table(each, columns=["run_id", "run_name"]).to_pylist() for each in files]
        return {row["run_id"]: str(row["run_name"]) for rows in tables for row in rows}
    except (OSError, pa.ArrowException, UnreadableFileError):  # what can be read of it is one run
        return {}


def _is_of(run_id: str, row: Row) -> bool:
    return bool(row.get("run_id") == run_id)


def _is_evaluation(row: Row) -> bool:
    """Whether a trace is one of validation, as verl marks it."""
    try:
        facts = parse_json(row.get("metadata", "{}"))
    except (TypeError, ValueError):  # it is a bad row of the training
        return False
    found = facts if isinstance(facts, dict) else {}
    return found.get("validate") is True or found.get("source") == "validation_generations"


def _new_rows(source: RolloutSource, file: Path) -> Iterator[RecordedStep]:
    """Yield the new rows of a SQLite file: its position is the last trace, its number of rows the last of metrics."""
    last_trace, last_metrics, last_table = source.position(file), source.num_rows(file), source.waiting(file)
    try:
        with open_project(file) as project:
            newest = project.newest()
            if newest[0] < last_trace or newest[1] < last_metrics:
                raise SourceChangedError(f"{file} was overwritten while it was being read; open it again.")
            rows = project.metrics(last_metrics)
            yield from _metrics(source, file, ((number, row, row["metrics"]) for number, row in rows))
            yield from source.rollouts([file], _trace, lambda _: project.traces(last_trace))
            yield from source.rollouts([file], partial(_tables, last_table), lambda _: project.metrics(last_metrics))
            source.advance(file, *newest, waiting=last_table)
    except UnreadableFileError as error:
        source.bad.add(file, 0, str(error))


def _exported(source: RolloutSource, file: Path) -> Iterator[RecordedStep]:
    """Yield the numbers and the tables of exported metrics."""
    rows = [*source.parquet_rows(file)]
    yield from _metrics(source, file, ((number, row, row) for number, row in rows))
    yield from source.rollouts([file], partial(_tables, []), lambda _: rows)


def _metrics(source: RolloutSource, file: Path, rows: Iterable[tuple[int, Row, Any]]) -> Iterator[RecordedStep]:
    """Yield the numbers of rows, each given with its own number, its fields and what holds the numbers."""
    for number, row, given in rows:
        if not source.is_of_part(row):
            continue
        try:
            values = given if isinstance(given, dict) else parse_json(given)
            has_own = values.get(_STEP_OF_TRAINER) is not None
            step = step_of(values, _STEP_OF_TRAINER) if has_own else step_of(row, "step")
        except (AttributeError, TypeError, ValueError):
            source.bad.add(file, number, "expected a step and its numbers.")
            continue
        if found := {name: value for name, value in values.items() if name not in _OF_METRICS and _is_number(value)}:
            yield RecordedStep(step, metrics=found)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _trace(row: Row, _: Path) -> Rollouts:
    step, facts = step_of(row, "step"), parse_json(row["metadata"])
    if is_verl_call(facts):
        return [(step, made) for made in of_verl_call(facts["inputs"], facts.get("output"), facts)]
    messages = messages_of({"messages": parse_json(row["messages"])}, "messages")
    return [(step, of_metadata(messages, facts, row["key"]))]


def _tables(last: list[int], row: Row, _: Path) -> Rollouts:
    """Yield the rollouts of tables that differ from the one before them, whose checksum without steps is in `last`."""
    facts = parse_json(row["metrics"]) if isinstance(row.get("metrics"), str) else row
    values = facts.values() if isinstance(facts, dict) else ()
    tables = [value["_value"] for value in values if isinstance(value, dict) and value.get("_type") == "trackio.table"]
    for table in tables:
        if (made := trl.of_table(table)) and [crc := trl.checksum(table)] != last:
            last[:] = [crc]
            yield from made


def of_metadata(messages: tuple[Message, ...], metadata: Row, key: str | None = None) -> RecordedTrajectory:
    """Return the trajectory of a trace with these metadata, logged by the name `key` if it has one.

    Raises:
        ValueError: A number is none.
    """
    named = {name.removeprefix(_REWARD): value for name, value in metadata.items() if name.startswith(_REWARD)}
    given = metadata.get("rewards")
    rewards = {**named, **(given if isinstance(given, dict) else {})}
    total = next((name for name in _TOTALS if name in metadata), "")
    known = {*_KNOWN, total, *(name for name in metadata if name.startswith(_REWARD))}
    reward, extra = with_rewards(extra_of({**metadata, **rewards}, known - {*rewards}), [*rewards])
    group = metadata.get("group_id", metadata.get("group"))
    num_tokens = number_of(metadata, "completion_tokens")
    return RecordedTrajectory(
        messages=messages,
        reward=number_of(metadata, total) if total else reward,
        group=None if group is None else str(group),
        answer=next((metadata[name] for name in _ANSWERS if isinstance(metadata.get(name), str)), None),
        num_tokens=None if num_tokens is None else int(num_tokens),
        advantage=number_of(metadata, "advantage"),
        extra=extra if key is None else {"key": key, **extra},
    )
