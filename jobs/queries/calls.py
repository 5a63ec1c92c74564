"""A query of the table as programs call it: by name, with values whose types and bounds its parameters declare."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, create_model

from db.connections.session import Database
from db.rows.trajectories import TrajectoryFacets, TrajectorySortKey
from jobs.queries.table import QUERIES
from jobs.runs.lookup import NotFoundError, find_judge_id, find_run_id
from jobs.specs.mistakes import checked
from jobs.supervisor.open_index import open_fresh_index

GIVEN = ("database", "runs_root")
"""Parameters that no caller names."""
RUN = "Run id, a unique beginning or its end, or the run's name."
JUDGE = "Judge's job whose verdicts count; without it the task's oracle."
_NAMED = {
    "run_id": Annotated[str, Field(description=RUN)],
    "judge_run_id": Annotated[str | None, Field(description=JUDGE)],
}


def parameters(function: Callable[..., object]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a query that callers give, each annotated with type, bounds and description."""
    found = inspect.signature(function, eval_str=True).parameters
    return {
        name: item.replace(annotation=_NAMED.get(name, item.annotation))
        for name, item in found.items()
        if name not in GIVEN
    }


def describe(function: Callable[..., object]) -> str:
    """Return the first sentence of a query's docstring."""
    return (function.__doc__ or "").partition("\n\n")[0]


@cache
def values_model(function: Callable[..., object]) -> type[BaseModel]:
    """Return the model that checks the values of a query; its JSON schema describes them."""
    fields: dict[str, Any] = {
        key: (item.annotation, ... if item.default is item.empty else item.default)
        for key, item in parameters(function).items()
    }
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def answer_schema(function: Callable[..., object], reference: str) -> dict[str, Any]:
    """Return the JSON schema of a query's answer; `reference` is where the types that it names stand."""
    answer = inspect.signature(function, eval_str=True).return_annotation
    return TypeAdapter(answer).json_schema(mode="serialization", ref_template=reference)


def call(
    functions: Mapping[str, Callable[..., object]],
    name: str,
    values: Mapping[str, object],
    database: Database | None,
    runs_root: Path,
) -> object:
    """Return the answer of the function of this name: plain rows, or one mapping.

    A value may be a list of one, as the values of an address are.

    Raises:
        NotFoundError: There is no such function, or nothing that a value names.
        SpecError: A value is missing, unknown, or out of its bounds.
    """
    if name not in functions:
        raise NotFoundError(f"{name}: no such query; there are: {', '.join(functions)}.")
    model = values_model(functions[name])
    lists = {key for key, field in model.model_fields.items() if list[str] in get_args(field.annotation)}
    alone = {
        key: value[0] if isinstance(value, list) and len(value) == 1 and key not in lists else value
        for key, value in values.items()
    }
    given = checked(model, alone, name)
    return run(functions[name], {key: getattr(given, key) for key in model.model_fields}, database, runs_root)


def run(
    function: Callable[..., object], values: Mapping[str, Any], database: Database | None, runs_root: Path
) -> object:
    """Return the answer of a query to checked values; runs may be named as people do."""
    context = {"database": database, "runs_root": runs_root}
    found = {"run_id": find_run_id, "judge_run_id": find_judge_id}
    named = {key: found[key](runs_root, value) if key in found else value for key, value in values.items()}
    return function(**named, **{key: context[key] for key in _needs(function)})


def open_for(
    function: Callable[..., object] | None, runs_root: Path, database_url: str | None
) -> AbstractContextManager[Database | None]:
    """Return what opens the database, brought up to date, if the function reads it."""
    is_read = function is not None and "database" in _needs(function)
    return open_fresh_index(runs_root, database_url) if is_read else nullcontext()


def _needs(function: Callable[..., object]) -> set[str]:
    return set(GIVEN) & {*inspect.signature(function).parameters}


_REFERENCE = "#/components/schemas/{model}"


def openapi_document(prefix: str, files: Mapping[str, str]) -> dict[str, Any]:
    """Return the document of all queries at `PREFIX/NAME`, each a GET with its values in the address.

    `files` has the path and media type of each file of trajectories.
    """
    schemas: dict[str, Any] = {}
    paths = {f"{prefix}/{name}": {"get": _query(name, schemas)} for name in QUERIES}
    paths |= {path: {"get": _file(path, media)} for path, media in files.items()}
    token = {"type": "http", "scheme": "bearer", "description": "The token of the link that `exgrpo up` prints."}
    return {
        "openapi": "3.1.0",
        "info": {"title": "ExGRPO Workbench", "version": "1"},
        "paths": paths,
        "components": {"schemas": schemas, "securitySchemes": {"token": token}},
        "security": [{"token": []}],
    }


def _query(name: str, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the operation of a query; the types that it names are added to `schemas`."""
    values = values_model(QUERIES[name]).model_json_schema(ref_template=_REFERENCE)
    answer = answer_schema(QUERIES[name], _REFERENCE)
    schemas |= {**values.pop("$defs", {}), **answer.pop("$defs", {})}
    return _operation(name, describe(QUERIES[name]), values, {"application/json": {"schema": answer}})


def _file(path: str, media: str) -> dict[str, Any]:
    """Return the operation of a file of all trajectories that match."""
    values = values_model(TrajectoryFacets).model_json_schema()
    orders = ["", *(f"{sign}{key}" for key in TrajectorySortKey for sign in ("", "-"))]
    values["properties"]["sort"] = {"enum": orders, "default": "", "description": "Newest first where it is empty."}
    name = path.rpartition("/")[2]
    summary = "All trajectories of a run that match, with whole texts."
    return _operation(name, summary, values | {"required": ["run_id"]}, {media: {"schema": {"type": "string"}}})


def _operation(name: str, summary: str, values: dict[str, Any], content: dict[str, Any]) -> dict[str, Any]:
    required = values.get("required", ())
    return {
        "operationId": name,
        "summary": summary,
        "parameters": [
            {"name": key, "in": "query", "required": key in required, "schema": schema}
            for key, schema in values["properties"].items()
        ],
        "responses": {
            "200": {"description": "The rows.", "content": content},
            "400": {"description": "A value is wrong: `error` is one sentence."},
            "403": {"description": "The token is missing or wrong."},
            "404": {"description": "Nothing has the name or id that was asked for."},
        },
    }
