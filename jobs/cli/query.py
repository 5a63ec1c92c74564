"""The command that prints the rows of any page, for people and for programs."""

import inspect
import json
from collections.abc import Callable
from contextlib import nullcontext
from typing import Annotated, Any

import typer

from jobs.cli.options import (
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
from jobs.cli.query_table import QUERIES
from jobs.runs.lookup import find_judge_id, find_run_id
from jobs.supervisor.open_index import open_fresh_index

_ANNOTATIONS = {
    "run_id": RunName,
    "judge_run_id": JudgeRun,
}
AsLines = Annotated[bool, typer.Option("--lines", help="Print JSON, one line a row.")]

query_app = command_group("Print what pages show, one line a row, or as JSON.")


def _command(function: Callable[..., object]) -> Callable[..., None]:
    parameters = inspect.signature(function, eval_str=True).parameters
    given = {"database", "runs_root"} & {*parameters}

    def call(
        runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
        database_url: DatabaseUrl = None,
        as_json: AsJson = False,
        as_lines: AsLines = False,
        **values: Any,  # noqa: ANN401 - what the query's parameters say
    ) -> None:
        if "run_id" in values:
            values["run_id"] = find_run_id(runs_root, values["run_id"])
        if "judge_run_id" in values:
            values["judge_run_id"] = find_judge_id(runs_root, values["judge_run_id"])
        with open_fresh_index(runs_root, database_url) if "database" in given else nullcontext() as database:
            context = {"database": database, "runs_root": runs_root}
            answer = function(**values, **{name: context[name] for name in given})
            _print(answer, as_json, as_lines)
            if isinstance(answer, list) and len(answer) == values.get("limit"):
                print_status(f"At most {len(answer)} rows; --limit gives more.")

    shared = [*inspect.signature(call, eval_str=True).parameters.values()][:-1]
    own = [
        parameter.replace(annotation=_ANNOTATIONS.get(name, parameter.annotation))
        for name, parameter in parameters.items()
        if name not in given
    ]
    signature = inspect.Signature([item.replace(kind=inspect.Parameter.KEYWORD_ONLY) for item in (*own, *shared)])
    call.__signature__ = signature  # type: ignore[attr-defined] # what typer reads
    call.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
    call.__doc__ = (function.__doc__ or "").partition("\n\n")[0]
    return call


def _print(answer: object, as_json: bool, as_lines: bool) -> None:
    """Print rows as one line each, of which JSON alone has the nested values; print anything else as JSON."""
    from pydantic_core import to_json, to_jsonable_python

    if as_json:
        print_json(answer)
    elif not isinstance(answer, list):
        print_result(to_json(answer, indent=2, inf_nan_mode="null", fallback=str).decode())
    elif as_lines:
        for row in answer:
            print_result(to_json(row, inf_nan_mode="null", fallback=str).decode())
    elif not answer:
        print_status("No rows.")
    else:
        rows = [_cells(row) for row in to_jsonable_python(answer, inf_nan_mode="constants", fallback=str)]
        print_result("\t".join(rows[0]))
        for cells in rows:
            print_result("\t".join(cells.values()))


def _cells(row: dict[str, Any]) -> dict[str, str]:
    """Return the plain values of a row as text without line ends."""
    plain = {name: value for name, value in row.items() if not isinstance(value, dict | list)}
    texts = {name: value if isinstance(value, str) else json.dumps(value) for name, value in plain.items()}
    return {name: text.replace("\n", "\\n").replace("\t", "\\t") for name, text in texts.items()}


for _name, _function in QUERIES.items():
    query_app.command(_name)(_command(_function))
