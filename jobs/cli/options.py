"""Options that commands share, and how they print."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from exgrpo.db import DATABASE_URL_VARIABLE
from exgrpo.db.rows.display_names import escape_control_characters
from exgrpo_core.durable_files import explain
from exgrpo_core.errors import EngineError, InputError, UserError

if TYPE_CHECKING:
    from rich.console import Console

RUNS_ROOT_VARIABLE = "EXGRPO_RUNS_ROOT"
DEBUG_VARIABLE = "EXGRPO_DEBUG"
EXIT_FAILURE = 1
EXIT_BAD_INPUT = 2
EXIT_STOPPED = 3
DEFAULT_PORT = 8501

RunsRoot = Annotated[
    Path, typer.Option("--runs-root", envvar=RUNS_ROOT_VARIABLE, help="Folder that holds the runs.", file_okay=False)
]
DatabaseUrl = Annotated[
    str | None,
    typer.Option("--database-url", envvar=DATABASE_URL_VARIABLE, help="Database. Default: SQLite in the runs root."),
]
RunName = Annotated[str, typer.Argument(metavar="RUN", help="Run name, run id, or any unique start or end of the id.")]
Limit = Annotated[int, typer.Option(min=1, max=2**31, help="Print at most this many.")]
TrajectoryNumber = Annotated[
    int, typer.Argument(metavar="TRAJECTORY", min=0, max=2**62, help="Number of the trajectory.")
]
FormatFile = Annotated[
    Path | None,
    typer.Option(
        "--format",
        metavar="FILE",
        help="How to read rows of an unknown format: a YAML mapping, or a Python file with one function.",
    ),
]
JudgeRun = Annotated[
    str | None, typer.Option("--judge", help="Judge run whose verdicts count. Default: the oracle of the task.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Change a field, as FIELD=VALUE. Repeatable.")
]
Detach = Annotated[bool, typer.Option("--detach", help="Return at once instead of waiting for the end.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]

_PIPED = 1000
"""Columns of output that no terminal shows."""
DEFAULT_RUNS_ROOT = Path("runs")


def print_result(text: str) -> None:
    """Print one line of a result; control characters in it are escaped."""
    typer.echo(escape_control_characters(text))


def table_console() -> "Console":
    """Return what prints tables: as wide as the terminal, and without one so wide that a row is one line."""
    from rich.console import Console

    console = Console()
    if not console.is_terminal:
        console.width = _PIPED
    return console


def counted(number: int, singular: str, plural: str) -> str:
    """Return a number with its noun: `1 run`, `3 runs`."""
    return f"{number:,} {singular if number == 1 else plural}"


def print_status(text: str) -> None:
    """Print one line of status on stderr, apart from the result."""
    typer.echo(escape_control_characters(text), err=True)


def print_json(content: object) -> None:
    """Print a result as JSON: dates in ISO form, data classes as mappings, null for NaN and infinite numbers."""
    from pydantic_core import to_json

    typer.echo(to_json(content, indent=2, inf_nan_mode="null", fallback=str))


def error_message(error: Exception) -> tuple[str, int]:
    """Return one sentence on an error and its exit code: 2 for bad input, 1 for a failure."""
    if isinstance(error, UserError | EngineError):
        return str(error), EXIT_BAD_INPUT if isinstance(error, InputError | EngineError) else EXIT_FAILURE
    if isinstance(error, ModuleNotFoundError) and error.name:
        from exgrpo.jobs.machine.engine_environments import describe_missing_package

        return describe_missing_package(error.name), EXIT_FAILURE
    if isinstance(error, OSError):
        return f"{error.filename or 'A file'}: {explain(error)}.", EXIT_FAILURE
    if isinstance(error, MemoryError):
        return "Memory ran out; give this command more (see `ulimit -v`) or end other programs.", EXIT_FAILURE
    first_line = str(error).strip().partition("\n")[0]
    hint = f"Set {DEBUG_VARIABLE}=1 to see the traceback."
    return f"Unexpected {type(error).__name__}: {first_line} {hint}", EXIT_FAILURE


class FriendlyGroup(typer.core.TyperGroup):
    """A group of commands that prints one sentence if a command raises."""

    def invoke(self, ctx: Any) -> Any:  # noqa: ANN401 - the signature of typer's class
        """Run the chosen command; an error is one line on stderr, with `--json` on stdout too, and an exit code."""
        if os.environ.get(DEBUG_VARIABLE):
            return super().invoke(ctx)
        return _guarded(lambda: super(FriendlyGroup, self).invoke(ctx), as_json="--json" in ctx.args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401 - the signature of typer's class
        """List the commands with their complete first sentences."""
        visible = {name: self.commands[name] for name in self.list_commands(ctx) if not self.commands[name].hidden}
        with formatter.section("Commands"):
            formatter.write_dl([(name, command.get_short_help_str(limit=1000)) for name, command in visible.items()])


def command_group(explanation: str, name: str | None = None, group: type[FriendlyGroup] = FriendlyGroup) -> typer.Typer:
    """Return a group of commands. Its help is plain text: the import of boxes takes longer than everything else."""
    return typer.Typer(
        name=name,
        cls=group,
        help=explanation,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        context_settings={"max_content_width": 120},
    )


def _guarded(call: Callable[[], Any], *, as_json: bool) -> Any:  # noqa: ANN401 - any result of a command
    try:
        return call()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # the reader of the output has closed it
        raise typer.Exit(0) from None
    except Exception as error:
        if type(error).__module__.split(".")[0] in {"typer", "click"}:
            raise
        sentence, code = error_message(error)
        print_status(sentence)
        if as_json:
            typer.echo(json.dumps({"why": sentence}))
        raise typer.Exit(code) from None
