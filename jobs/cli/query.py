"""The command that prints the rows of any page, for people and for programs."""

import csv
import inspect
import json
import sys
from collections.abc import Callable
from enum import StrEnum
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from exgrpo.db.queries.runs import get_run
from exgrpo.db.rows.trajectories import extra_names, spread_extra
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    JudgeRun,
    RunName,
    RunsRoot,
    command_group,
    print_json,
    print_result,
    print_status,
)
from exgrpo.jobs.queries import calls
from exgrpo.jobs.queries.table import QUERIES
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.lookup import find_run_id

_ANNOTATIONS = {
    "run_id": RunName,
    "judge_run_id": JudgeRun,
    "run": Annotated[str | None, typer.Argument(metavar="[RUN]", help="Training run. Default: all runs.")],
}
_FLAGS = {
    "correct": ["--correct/--wrong"],
    "only_correct": ["--correct"],
    "replayed": ["--replayed/--never-replayed"],
    "whole": ["--whole"],
    "unsolved": ["--unsolved"],
    "metric": ["-m", "--metric"],
}
AsLines = Annotated[bool, typer.Option("--lines", help="Print JSON Lines: one JSON object per row.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV. Nested values are written as JSON.")]
AsParquet = Annotated[bool, typer.Option("--parquet", help="Write Parquet to standard output; add `> FILE`.")]


class Shape(StrEnum):
    """How rows are printed."""

    TEXT = "text"
    JSON = "json"
    LINES = "lines"
    CSV = "csv"
    PARQUET = "parquet"


query_app = command_group("Print the rows that pages show. Text, JSON, CSV or Parquet.")


def _command(function: Callable[..., object]) -> Callable[..., None]:
    def call(
        runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
        database_url: DatabaseUrl = None,
        as_json: AsJson = False,
        as_lines: AsLines = False,
        as_csv: AsCsv = False,
        as_parquet: AsParquet = False,
        **values: Any,  # noqa: ANN401 - what the query's parameters say
    ) -> None:
        flags = {Shape.JSON: as_json, Shape.LINES: as_lines, Shape.CSV: as_csv, Shape.PARQUET: as_parquet}
        asked = [shape for shape, is_asked in flags.items() if is_asked]
        if len(asked) > 1:
            raise CommandError(f"--{asked[0]}, --{asked[1]}: expected one of them.")
        with calls.open_for(function, runs_root, database_url) as database:
            answer = calls.run(function, values, database, runs_root)
            _print(answer, asked[0] if asked else Shape.TEXT)
            if database is not None and (run_id := values.get("run_id")):
                row = get_run(database, find_run_id(runs_root, run_id))
                for sentence in row.left_out if row else ():
                    print_status(sentence)
            if isinstance(answer, list) and len(answer) == values.get("limit"):
                print_status(f"{len(answer)} rows, as --limit says; there may be more.")

    shared = [*inspect.signature(call, eval_str=True).parameters.values()][:-1]
    own = [item.replace(annotation=_typed(item)) for item in calls.parameters(function).values()]
    signature = inspect.Signature([item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in (*own, *shared)])
    call.__signature__ = signature  # type: ignore[attr-defined] # what typer reads
    call.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
    call.__doc__ = calls.describe(function)
    return call


def _typed(parameter: inspect.Parameter) -> Any:  # noqa: ANN401 - what typer reads of an annotation
    """Return a parameter's annotation as typer's: without a default it is an argument, else an option."""
    if parameter.name in _ANNOTATIONS:
        return _ANNOTATIONS[parameter.name]
    kind, words = parameter.annotation, {}
    if get_origin(kind) is Annotated:
        kind, field = get_args(kind)
        words = {"help": field.description, "min": _bound(field, "ge"), "max": _bound(field, "le")}
    if parameter.default is parameter.empty:
        return Annotated[kind, typer.Argument(**words)]
    return Annotated[kind, typer.Option(*_FLAGS.get(parameter.name, ()), **words)]


def _bound(field: FieldInfo, name: str) -> int | None:
    return next((getattr(item, name) for item in field.metadata if hasattr(item, name)), None)


def _print(answer: object, shape: Shape) -> None:
    """Print rows as one line each, without columns of nested values. Print anything else as JSON."""
    from pydantic_core import to_json, to_jsonable_python

    if shape is Shape.JSON:
        print_json(answer)
    elif not isinstance(answer, list):
        if shape in {Shape.CSV, Shape.PARQUET}:
            raise CommandError(f"--{shape}: expected a query that gives rows, this one gives one record; use --json.")
        print_result(to_json(answer, indent=2, inf_nan_mode="null", fallback=str).decode())
    elif shape is Shape.LINES:
        for row in answer:
            print_result(to_json(row, inf_nan_mode="null", fallback=str).decode())
    elif not answer and shape is Shape.TEXT:
        print_status("No rows.")
    else:
        plain = to_jsonable_python(answer, inf_nan_mode="null", fallback=str)
        rows = spread_extra(plain, extra_names(plain))
        {Shape.CSV: _write_csv, Shape.PARQUET: _write_parquet, Shape.TEXT: _write_text}[shape](rows)


def _flat(row: dict[str, Any]) -> dict[str, Any]:
    return {name: json.dumps(value) if isinstance(value, dict | list) else value for name, value in row.items()}


def _write_csv(rows: list[dict[str, Any]]) -> None:
    if rows:
        writer = csv.DictWriter(sys.stdout, list(rows[0]))
        writer.writeheader()
        writer.writerows(map(_flat, rows))


def _write_parquet(rows: list[dict[str, Any]]) -> None:
    import pyarrow as pa
    from pyarrow.parquet import write_table

    if sys.stdout.isatty():
        raise CommandError("--parquet: writes bytes; send them to a file: `> rows.parquet`.")
    write_table(pa.Table.from_pylist([_flat(row) for row in rows]), pa.PythonFile(sys.stdout.buffer, "w"))


def _write_text(rows: list[dict[str, Any]]) -> None:
    names = [name for name in rows[0] if not any(isinstance(row[name], dict | list) for row in rows)]
    print_result("\t".join(names))
    for row in rows:
        print_result("\t".join(_cell(row[name]) for name in names))


def _cell(value: object) -> str:
    """Return a plain value as text without line ends."""
    text = value if isinstance(value, str) else json.dumps(value)
    return text.replace("\n", "\\n").replace("\t", "\\t")


for _name, _function in QUERIES.items():
    query_app.command(_name)(_command(_function))
