"""The command that serves the queries to an agent as tools of MCP, and, where allowed, what an operator may do."""

import re
import sys
from collections.abc import Callable, Mapping
from importlib.metadata import version
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from pydantic import Field

from exgrpo.jobs.actions import queueing, run_actions
from exgrpo.jobs.cli.options import DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot, error_message
from exgrpo.jobs.queries import calls
from exgrpo.jobs.queries.table import QUERIES
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.people import Person, Role, acting_as
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import load_preset

if TYPE_CHECKING:
    from mcp.server import Server

PERSON = Person("agent", Role.OPERATOR)
"""Who asked, in the journal."""
_ABOUT = (
    "Runs of ExGRPO training: curves, replay buffer, selections, trajectories with their lineage, judges' verdicts, "
    "benchmark scores. The tool `runs` lists them; the others take a run's name or id."
)

_ESCAPE = re.compile(r"\\(?:u[dD][89abAB]..\\u[dD][c-fC-F]..|(u[dD][89a-fA-F]..)|.)")
"""An escape of JSON; the group is half of a surrogate pair without the other."""


class Received(TextIOWrapper):
    """Standard input, in which halves of surrogate pairs are replaced: MCP answers no request that has one."""

    def readline(self, size: int = -1, /) -> str:  # type: ignore[override] # as the type of files of text has it
        """Return the next line."""
        return _ESCAPE.sub(lambda found: r"\ufffd" if found[1] else found[0], super().readline(size))


def queue_run(
    runs_root: Path,
    preset: Annotated[str, Field(description="A name that the tool `presets` lists.")],
    settings: Annotated[list[str], Field(description="Changed fields, such as num_steps=200.")],
) -> str:
    """Queue a training run and return its id; it starts while `exgrpo up` runs."""
    return queueing.queue_job(runs_root, apply_settings(load_preset(preset), settings))


def stop_run(runs_root: Path, run_id: str) -> str:
    """Stop a run. It ends at its next step, with a checkpoint."""
    run_actions.stop(runs_root, run_id)
    return f"{run_id} was asked to stop."


def resume_run(runs_root: Path, run_id: str) -> str:
    """Queue a run again from its newest whole checkpoint."""
    return run_actions.resume(runs_root, run_id)


ACTIONS: dict[str, Callable[..., object]] = {"queue-run": queue_run, "stop-run": stop_run, "resume-run": resume_run}


def mcp(
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    operator: Annotated[
        bool, typer.Option("--operator", help="Also let the agent start, stop and resume runs.")
    ] = False,
) -> None:
    """Serve the queries to an agent by MCP. Uses standard input and output."""
    import asyncio

    import anyio
    from mcp.server.stdio import stdio_server

    if not runs_root.is_dir():
        raise CommandError(f"{runs_root}: no such folder; name one that holds runs with --runs-root.")
    server = make_server(QUERIES | (ACTIONS if operator else {}), runs_root, database_url)

    async def serve() -> None:
        lines = anyio.wrap_file(Received(sys.stdin.buffer, encoding="utf-8", errors="replace"))
        async with stdio_server(lines) as (received, sent):
            await server.run(received, sent, server.create_initialization_options())

    asyncio.run(serve())


def make_server(
    functions: Mapping[str, Callable[..., object]], runs_root: Path, database_url: str | None
) -> "Server[dict[str, object]]":
    """Return a server whose tools are the functions; what is refused is one sentence, marked as an error."""
    import asyncio

    from mcp import types
    from mcp.server import Server, ServerRequestContext
    from pydantic_core import to_json

    listed = [
        types.Tool(
            name=name,
            description=calls.describe(function),
            input_schema=calls.values_model(function).model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=name not in ACTIONS),
        )
        for name, function in functions.items()
    ]

    def answer(name: str, values: Mapping[str, object]) -> types.CallToolResult:
        try:
            with acting_as(PERSON), calls.open_for(functions.get(name), runs_root, database_url) as database:
                found = calls.call(functions, name, values, database, runs_root)
            text, is_error = to_json(found, indent=1, inf_nan_mode="null", fallback=str).decode(), False
        except Exception as error:  # noqa: BLE001 - an agent gets one sentence, as a person at the terminal does
            text, is_error = error_message(error)[0], True
        return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)

    async def list_tools(
        _: ServerRequestContext[dict[str, object]], __: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        _: ServerRequestContext[dict[str, object]], asked: types.CallToolRequestParams
    ) -> types.CallToolResult:
        return await asyncio.to_thread(answer, asked.name, asked.arguments or {})

    return Server(
        "exgrpo",
        version=version("exgrpo-workbench"),
        instructions=_ABOUT,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )
