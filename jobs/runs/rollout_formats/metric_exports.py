"""Metrics of W&B and MLflow, and any JSON lines or table with a step and numbers.

W&B (by its documentation): the CSV of a chart (`Step`, `RUN - METRIC`), and `run.history()` as CSV, JSON or Parquet
(`_step`). MLflow 3.17: what `metrics/get-history` answers, as JSON or CSV (`key`, `value`, `step`), and a run's folder
of the file store, whose `metrics/NAME` has a line `TIME VALUE STEP` a value.
"""

import csv
import io
import math
import re
import reprlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from exgrpo_core.bounded_json import parse_json, read_plain
from exgrpo_core.recording.rows import RecordedStep
from exgrpo_core.recording.run import MAX_STEP
from jobs.runs.rollout_formats.row_fields import Row
from jobs.runs.rollout_formats.source import RolloutSource, Rows, Sample

_STEPS = ("_step", "step", "Step", "global_step", "trainer/global_step")
_OTHERS = {"prompt", "completion", "messages", "input", "output", "content", "traces", "resps"}
"""Fields of rollouts, which have steps and numbers too."""
_LONG = {"value", "step"}
_SPREADS = ("__MIN", "__MAX")
"""Ends of the columns that W&B adds for the spread of a smoothed line."""
_STORED = re.compile(rb"\d+ \S+ \d+\n")
_TABLES = (".csv", ".json")
_MAX_BYTES = 256 << 20


def recognises(sample: Sample) -> bool:
    """Whether rows have a step and no fields of rollouts, or there are metrics of MLflow's file store."""
    if sample.rows:
        return bool(sample.fields & set(_STEPS)) and not any(row.keys() & _OTHERS for row in sample.rows)
    first = next((file for file in sample.files if file.stat().st_size), None)
    if first is None or first.suffix not in _TABLES:
        return any(_is_stored(sample.path, file) for file in sample.files) and bool(_STORED.match(sample.head))
    names = set(re.findall(rb'[^",\[{}\s]+', sample.head[:2000]))
    is_json = sample.head[:1] in b"[{"
    return bool(names & {name.encode() for name in _STEPS}) and (not is_json or bool(names & {b"_step", b"metrics"}))


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the metrics of each step; what a file has of one step comes at once, but for JSON lines and Parquet."""
    for file in source.files():
        try:
            if file.suffix == ".parquet":
                yield from _steps(source, file, source.parquet_rows(file))
            elif file.suffix == ".jsonl":
                for row in source.json_rows(file):
                    yield from _steps(source, file, [row])
            elif file.suffix in _TABLES or _is_stored(source.path, file):
                yield from _steps(source, file, enumerate(_whole(source, file), 1 + (file.suffix == ".csv")))
        except (ValueError, csv.Error) as error:
            source.bad.add(file, 0, str(error))


def _is_stored(path: Path, file: Path) -> bool:
    return (path / "metrics") in file.parents


def _whole(source: RolloutSource, file: Path) -> Iterable[Row]:
    """Return the rows of a file that is read at once, none where it was read before."""
    if not source.is_new(file):
        return []
    content = read_plain(file, _MAX_BYTES)
    source.advance(file, len(content))
    if file.suffix == ".csv":
        return list(csv.DictReader(io.StringIO(content.decode("utf-8-sig"))))
    if file.suffix != ".json":
        name = file.relative_to(source.path / "metrics").as_posix()
        fields = (line.split() for line in content.decode().splitlines())
        return [{"key": name, "value": line[1], "step": line[2]} for line in fields if len(line) == 3]
    value = parse_json(content)
    rows = value.get("metrics") if isinstance(value, dict) else value
    return [row for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []


def _steps(source: RolloutSource, file: Path, rows: Rows) -> Iterator[RecordedStep]:
    metrics: dict[int, dict[str, float]] = defaultdict(dict)
    for line, row in rows:
        step = next((number for name in _STEPS if (number := _number(row.get(name))) is not None), None)
        if step is None or not 0 <= step <= MAX_STEP or step != int(step):
            given = next((row[name] for name in _STEPS if name in row), None)
            source.bad.add(
                file, line, f"step: expected a whole number of 0 to {MAX_STEP:,}, got {reprlib.repr(given)}."
            )
            continue
        name = row.get("key", row.get("metric"))
        values = {name: row["value"]} if isinstance(name, str) and row.keys() >= _LONG else row
        metrics[int(step)].update(
            {str(name): number for name, value in values.items()
             if name not in _STEPS and not str(name).endswith(_SPREADS) and (number := _number(value)) is not None}
        )  # fmt: skip
    yield from (RecordedStep(step, metrics=of_step) for step, of_step in metrics.items() if of_step)


def _number(value: object) -> float | None:
    """Return a finite number, given as one or as the text of a table; other values are no metrics."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        return number if math.isfinite(number := float(value)) else None
    except (ValueError, OverflowError):
        return None
