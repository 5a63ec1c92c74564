"""The `exgrpo` command: one table of all commands, each of which is imported when it is called."""

import ast
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from exgrpo.jobs.cli.options import FriendlyGroup, command_group
from exgrpo_core.process_setup import keep_private, settle_user

COMMANDS = {
    "run": {
        "train": "train:train",
        "probe": "probe:probe",
        "stop": "runs:stop",
        "resume": "runs:resume",
        "clone": "runs:clone",
        "branch": "runs:branch",
    },
    "data": {
        "import": "data:import_",
        "export": "data:export",
        "publish": "data:publish",
        "backup": "data:backup",
        "verify": "data:verify",
    },
    "evaluate": {
        "eval": "evaluate:evaluate",
        "grade": "grade:grade",
        "chat": "probe:chat",
        "judge": "evaluate:judge",
        "case": "annotations:case_app",
        "study": "study:study_app",
        "sweep": "study:sweep",
    },
    "look": {
        "runs": "runs:runs",
        "show": "runs:show",
        "logs": "runs:logs",
        "replay": "replay:replay",
        "query": "query:query_app",
        "mcp": "agents:mcp",
        "annotate": "annotations:annotate_app",
        "bin": "annotations:bin_app",
    },
    "workbench": {
        "demo": "demo:demo",
        "view": "view:view",
        "up": "workbench:up",
        "doctor": "doctor:doctor",
        "db": "data:database_app",
    },
}
"""By heading and name: module of this folder, and function or group in it."""
_TARGETS = {name: target for commands in COMMANDS.values() for name, target in commands.items()}


class LazyGroup(FriendlyGroup):
    """The commands of the table; listing them imports none."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - the signature of typer's class
        """Return the names in the order of the table."""
        return list(_TARGETS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - the signature of typer's class
        """Import one command; None where the table has no such name."""
        if cmd_name not in _TARGETS:
            return None
        module, attribute = _TARGETS[cmd_name].split(":")
        loaded = getattr(import_module(f"exgrpo.jobs.cli.{module}"), attribute)
        if not isinstance(loaded, typer.Typer):
            alone = command_group("")
            alone.command(cmd_name)(loaded)
            loaded = alone
        command = typer.main.get_command(loaded)
        command.name = cmd_name
        return command

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401 - the signature of typer's class
        """Find a command; typer suggests names of `commands` for a misspelt one."""
        self.commands = dict.fromkeys(_TARGETS, self)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - likewise
        """List the commands under their headings."""
        for heading, commands in COMMANDS.items():
            with formatter.section(heading.capitalize()):
                formatter.write_dl([(name, read_help(target)) for name, target in commands.items()])


def read_help(target: str) -> str:
    """Return what a command or group says of itself in the text of its module, which is not imported."""
    module, name = target.split(":")
    for node in _read_module(module):
        if isinstance(node, ast.FunctionDef) and node.name == name:
            return " ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split())
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name and isinstance(node.value, ast.Call):
            return str(ast.literal_eval(node.value.args[0]))
    raise LookupError(f"jobs/cli/{module}.py: has no {name}.")


@cache
def _read_module(name: str) -> list[ast.stmt]:
    return ast.parse(Path(__file__).with_name(f"{name}.py").read_text(encoding="utf-8")).body


app = command_group("Train with ExGRPO, and see what its replay buffer does.", "exgrpo", LazyGroup)


@app.callback()
def _no_options() -> None:
    """Make a group of an application whose commands are not registered here."""


def main() -> None:
    """Run the command that the command line names; the files that it makes are its user's alone."""
    keep_private()
    settle_user()
    app()
