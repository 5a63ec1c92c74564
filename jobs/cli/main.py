"""The `exgrpo` command: one table of all commands, each of which is imported when it is called."""

from importlib import import_module
from typing import Any

import typer

from exgrpo_core.process_setup import keep_private, settle_user
from jobs.cli.options import FriendlyGroup, command_group

COMMANDS = {
    "run": {
        "train": (
            "train:train",
            "Train a model. Ctrl-C stops the run at its next step with a checkpoint; a second leaves the run going.",
        ),
        "probe": (
            "probe:probe",
            "Sample a few responses before a run. Prints Pass@1, format, truncation and entropy, and what to change.",
        ),
        "stop": ("runs:stop", "Stop a run. It ends at its next step, with a checkpoint."),
        "resume": (
            "runs:resume",
            "Continue a run from its newest checkpoint.",
        ),
        "clone": ("runs:clone", "Copy a run's settings. Prints them with changed fields, or starts a new run."),
        "branch": (
            "runs:branch",
            "Continue from a checkpoint as a new run. Settings can change.",
        ),
    },
    "data": {
        "import": (
            "data:import_",
            "Copy a run or rollouts into the runs root.",
        ),
        "export": (
            "data:export",
            "Write a run or a checkpoint's model. A run becomes a .tar.gz file or a folder.",
        ),
        "publish": (
            "data:publish",
            "Write runs as a static page. It opens from a file or a web server.",
        ),
        "backup": (
            "data:backup",
            "Write all runs to one tar file. Runs can go on while it writes.",
        ),
        "verify": (
            "data:verify",
            "Check files against their checksums. Exits with 1 if a file is damaged.",
        ),
    },
    "evaluate": {
        "eval": (
            "evaluate:evaluate",
            "Score a model on benchmarks. Ctrl-C stops the scoring and `exgrpo resume` continues it.",
        ),
        "chat": ("probe:chat", "Send a prompt to one or more models. Each gets the prompt template of its run."),
        "judge": (
            "evaluate:judge",
            "Judge chains of thought. Ctrl-C stops the judge and `exgrpo resume` continues it.",
        ),
        "case": (
            "annotations:case_app",
            "Find snowball cases. Also applies the paper's rules for code in chains of thought.",
        ),
        "study": ("study:study_app", "Run the paper's tables. Reports compare them with the paper's numbers."),
        "sweep": (
            "sweep:sweep",
            "Run all combinations of the listed values. A second call runs what is still missing.",
        ),
    },
    "look": {
        "runs": ("runs:runs", "List runs, newest first. Add search words to find some of them."),
        "show": ("runs:show", "Show one run. Prints state, newest metrics, evaluations, attempts and checkpoints."),
        "logs": ("runs:logs", "Print the log of a run."),
        "replay": (
            "replay:replay",
            "Execute a recorded step again. Exits with 1 if the record differs from what its settings give.",
        ),
        "query": ("query:query_app", "Print the rows that pages show. Text, JSON, CSV or Parquet."),
        "mcp": ("agents:mcp", "Serve the queries to an agent by MCP. Uses standard input and output."),
        "annotate": (
            "annotations:annotate_app",
            "Name, tag and note runs. Also marks and judges trajectories.",
        ),
        "bin": ("annotations:bin_app", "Delete and restore runs. Also removes deleted runs for good."),
    },
    "workbench": {
        "demo": (
            "demo:demo",
            "Train a tiny model and show it. Trains with ExGRPO and with Dr.GRPO.",
        ),
        "view": (
            "view:view",
            "Open rollouts or runs read-only. Shows them in the browser and writes only a cache.",
        ),
        "up": (
            "workbench:up",
            "Start the workbench. Ctrl-C ends pages and supervisor, and runs continue.",
        ),
        "doctor": (
            "doctor:doctor",
            "Check what this machine can run. Looks at GPU, verl, vLLM, database, ports and disk.",
        ),
        "db": ("data:database_app", "Rebuild or inspect the database. It is an index of the run folders."),
    },
}
"""By heading and name: module of this folder, function or group in it, and line in the list of commands."""
_TARGETS = {name: target for commands in COMMANDS.values() for name, (target, _) in commands.items()}


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
        loaded = getattr(import_module(f"jobs.cli.{module}"), attribute)
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
                formatter.write_dl([(name, line) for name, (_, line) in commands.items()])


app = command_group("Train with ExGRPO, and see what its replay buffer does.", "exgrpo", LazyGroup)


@app.callback()
def _no_options() -> None:
    """Make a group of an application whose commands are not registered here."""


def main() -> None:
    """Run the command that the command line names; the files that it makes are its user's alone."""
    keep_private()
    settle_user()
    app()
