"""A query of the table as programs call it: by name, with values whose types and bounds its parameters declare."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from exgrpo.db.connections.session import Database
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.lookup import NotFoundError, find_judge_id, find_run_id
from exgrpo.jobs.specs.base import checked

GIVEN = ("database", "runs_root")
"""Parameters that no caller names."""
RUN = "Run name, run id, or any unique start or end of the id."
JUDGE = "Judge run whose verdicts count. Default: the task's oracle."
Number = Annotated[int, Field(ge=0, le=2**62, description="Number of the trajectory.")]
Limit = Annotated[int, Field(ge=1, le=10_000, description="At most this many.")]
_NAMED = {
    "limit": Limit,
    "step_from": Annotated[int, Field(ge=0, le=2**62, description="Only steps from this one on.")],
    "with_parents": Annotated[bool, Field(description="Also evaluations of the run that this run branched from.")],
    "steps": Annotated[
        int, Field(ge=1, le=10_000, description="Return about this many steps. The last step is one of them.")
    ],
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
    """Return what a query returns: the first sentence of its docstring, without its verb."""
    text = (function.__doc__ or "").partition("\n\n")[0].removeprefix("Return ")
    return text[:1].upper() + text[1:]


@cache
def values_model(function: Callable[..., object]) -> type[BaseModel]:
    """Return the model that checks the values of a query; its JSON schema describes them."""
    fields: dict[str, Any] = {
        key: (item.annotation, ... if item.default is item.empty else item.default)
        for key, item in parameters(function).items()
    }
    return create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)


def call(
    functions: Mapping[str, Callable[..., object]],
    name: str,
    values: Mapping[str, object],
    database: Database | None,
    runs_root: Path,
) -> object:
    """Return the answer of the function of this name: plain rows, or one mapping.

    Raises:
        NotFoundError: There is no such function, or nothing that a value names.
        SpecError: A value is missing, unknown, or out of its bounds.
    """
    if name not in functions:
        raise NotFoundError(f"{name}: no such query; there are: {', '.join(functions)}.")
    model = values_model(functions[name])
    given = checked(model, values, name)
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
