"""Metrics of W&B and MLflow, and any JSON lines or table with a step and numbers.

W&B (by its documentation): the CSV of a chart (`Step`, `RUN - METRIC`), and `run.history()` as CSV, JSON or Parquet
(`_step`). MLflow 3.17: what `metrics/get-history` answers, as JSON or CSV (`key`, `value`, `step`), and a run's folder
of the file store, whose `metrics/NAME` has a line `TIME VALUE STEP` a value.
"""

import codecs
import csv
import io
import math
import re
import reprlib
from collections import defaultdict
from collections.abc import Iterable, Iterator
from decimal import Decimal, InvalidOperation
from pathlib import Path

from exgrpo.jobs.runs.rollout_formats.rollout_files import bare, read_whole
from exgrpo.jobs.runs.rollout_formats.row_fields import Row, doubled
from exgrpo.jobs.runs.rollout_formats.source import RolloutSource, Rows, Sample
from exgrpo_core.bounded_json import parse_json
from exgrpo_core.recording.rows import RecordedStep
from exgrpo_core.recording.run import as_step, flat

_STEPS = ("_step", "step", "Step", "global_step", "trainer/global_step")
_OTHERS = {"prompt", "completion", "messages", "input", "output", "content", "traces", "resps"}
"""Fields of rollouts, which have steps and numbers too."""
_LONG = {"value", "step"}
_SPREADS = ("__MIN", "__MAX")
"""Ends of the columns that W&B adds for the spread of a smoothed line."""
_LIKE_NUMBER = re.compile(r"\s*[-+]?\d[\d.,'\s]*%?\s*")
_TRUTHS = {"true": 1.0, "false": 0.0}
_STORED = re.compile(rb"\d+ \S+ \d+\n")
_TABLES = (".csv", ".json")
_MAX_BYTES = 256 << 20


def recognises(sample: Sample) -> bool:
    """Whether rows have a step and no fields of rollouts, or there are metrics of MLflow's file store."""
    if sample.rows and not isinstance(sample.rows[0].get("metrics"), list):
        return bool(sample.fields & set(_STEPS)) and not any(row.keys() & _OTHERS for row in sample.rows)
    first = next((file for file in sample.files if file.stat().st_size), None)
    if first is None or bare(first).suffix not in _TABLES:
        return any(_is_stored(sample.path, file) for file in sample.files) and bool(_STORED.match(sample.head))
    head = sample.head.removeprefix(codecs.BOM_UTF8)
    names = set(re.findall(rb'[^",;\[{}\s]+', head[:2000]))
    is_json = head[:1] in b"[{"
    is_known = bool(names & {b"_step", b"metrics"}) or names >= {b"key", b"value"}
    return bool(names & {name.encode() for name in _STEPS}) and (not is_json or is_known)


def read(source: RolloutSource) -> Iterator[RecordedStep]:
    """Yield the metrics of each step; what a file has of one step comes at once, but for JSON lines and Parquet."""
    for file in source.files():
        suffix = bare(file).suffix
        unread: set[str] = set()
        try:
            if suffix == ".parquet":
                yield from _table(source, file, source.parquet_rows(file), unread)
            elif suffix == ".jsonl":
                for row in source.json_rows(file):
                    yield from _steps(source, file, [row], unread)
            elif suffix in _TABLES or _is_stored(source.path, file):
                rows = enumerate(_whole(source, file), 1 + (suffix == ".csv"))
                yield from _table(source, file, rows, unread)
        except (OSError, ValueError, csv.Error) as error:
            source.bad.add(file, 0, str(error))


def _table(source: RolloutSource, file: Path, rows: Rows, unread: set[str]) -> Iterator[RecordedStep]:
    """Yield the metrics of a whole file; one in which no field has a number is named with its fields."""
    fields: dict[str, None] = {}
    num_bad = source.bad.num
    steps = [*_steps(source, file, _noting(rows, fields), unread)]
    if fields and not steps and source.bad.num == num_bad:
        names = reprlib.repr(", ".join(name for name in fields if name not in _STEPS))
        source.bad.add(file, 0, f"expected a number in one of its fields {names}; this file has none.")
    yield from steps


def _noting(rows: Rows, fields: dict[str, None]) -> Rows:
    for line, row in rows:
        fields.update(dict.fromkeys(row))
        yield line, row


def _is_stored(path: Path, file: Path) -> bool:
    return (path / "metrics") in file.parents


def _whole(source: RolloutSource, file: Path) -> Iterable[Row]:
    """Return the rows of a file that is read at once, none where it was read before."""
    if not source.is_new(file):
        return []
    size, suffix = file.stat().st_size, bare(file).suffix
    content = read_whole(file, _MAX_BYTES)
    source.advance(file, size)
    if suffix == ".csv":
        return _table_rows(source, file, _decoded(content))
    if suffix != ".json":
        name = file.relative_to(source.path / "metrics").as_posix()
        fields = (line.split() for line in content.decode().splitlines())
        # Before MLflow had steps a line was TIME VALUE.
        return [{"key": name, "value": line[1], "step": (*line, "0")[2]} for line in fields if len(line) > 1]
    value = parse_json(content)
    rows = value.get("metrics") if isinstance(value, dict) else value
    if isinstance(value, dict) and value.get("next_page_token"):
        source.bad.add(file, 0, "next_page_token: this is one page of several; the other pages are not in it.")
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise ValueError("expected a list of JSON objects, each with a step.")
    return rows


def _decoded(content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"expected text in UTF-8, got another encoding at byte {error.start:,}.") from None


def _table_rows(source: RolloutSource, file: Path, text: str) -> list[Row]:
    """Return the rows of a table with commas, semicolons or tabs; one with more values than columns is named."""
    header = text.partition("\n")[0]
    table = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=header.count))
    if twice := doubled(table.fieldnames or ()):
        raise ValueError(twice)
    rows: list[Row] = []
    for row in table:
        if None in row:
            why = f"expected {len(table.fieldnames or ())} values, one a column; a number such as 1,5 needs quotes."
            source.bad.add(file, table.line_num, why)
        else:
            rows.append({name: value for name, value in row.items() if name})
    return rows


def _steps(source: RolloutSource, file: Path, rows: Rows, unread: set[str]) -> Iterator[RecordedStep]:
    """Yield the metrics of rows; what is no number is named once, and `unread` has its names."""
    metrics: dict[int, dict[str, float]] = defaultdict(dict)
    for line, row in rows:
        numbers = {name: number for name in _STEPS if (number := _number(row.get(name))) is not None}
        own = next((name for name, number in numbers.items() if math.isfinite(number)), "")
        try:
            step = as_step(row.get(own) if own else next((row[name] for name in _STEPS if name in row), None))
        except ValueError as error:
            source.bad.add(file, line, str(error))
            continue
        name = row.get("key", row.get("metric"))
        values = {name: row["value"]} if isinstance(name, str) and row.keys() >= _LONG else row
        media = {field: value["_type"] for field, value in values.items() if _is_media(value)}
        for field in media.keys() - unread:
            unread.add(field)
            source.bad.add(file, line, f"{field}: expected a number; a {media[field]} of W&B is not read.")
        for field, value in flat({name: value for name, value in values.items() if name not in media}):
            if field == own or field.endswith(_SPREADS):
                continue
            if (number := _number(value)) is not None:
                metrics[step][field] = number
            elif isinstance(value, str) and _LIKE_NUMBER.fullmatch(value) and field not in unread:
                unread.add(field)
                source.bad.add(file, line, f"{field}: expected a number such as 1234.5, got {reprlib.repr(value)}.")
    yield from (RecordedStep(step, metrics=of_step) for step, of_step in metrics.items() if of_step)


def _is_media(value: object) -> bool:
    """Whether it is what W&B writes of an image, a table or a histogram."""
    return isinstance(value, dict) and "_type" in value


def _number(value: object) -> float | None:
    """Return a number, given as one or as a text: a percentage as its share, true as 1; other values are none."""
    if isinstance(value, str) and value.lower() in _TRUTHS:
        return _TRUTHS[value.lower()]
    if not isinstance(value, str | int | float | Decimal):
        return None
    try:
        if isinstance(value, str) and value.strip().endswith("%"):
            return float(Decimal(value.strip()[:-1]) / 100)
        return float(value)
    except (ValueError, OverflowError, InvalidOperation):
        return None
