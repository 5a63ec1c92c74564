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
            "Train a model; Ctrl-C stops the run at its next step with a checkpoint, a second one leaves it running.",
        ),
        "probe": (
            "probe:probe",
            "Sample a few answers before a run: pass, format and truncation rates, entropy, and what to do if bad.",
        ),
        "stop": ("runs:stop", "Ask a run to stop at its next step, with a checkpoint."),
        "resume": (
            "runs:resume",
            "Queue a run again from its newest complete checkpoint.",
        ),
        "clone": ("runs:clone", "Print a job's specification with changed fields, or queue a new job with it."),
        "branch": (
            "runs:branch",
            "Queue a new run that continues from a checkpoint of another, with other settings where they can change.",
        ),
    },
    "data": {
        "import": (
            "data:import_",
            "Copy a run, or rollouts of another program, into the runs root.",
        ),
        "export": (
            "data:export",
            "Write a run as one .tar.gz file or a folder, or the model of its checkpoint RUN@STEP as a folder.",
        ),
        "publish": (
            "data:publish",
            "Write runs as a static page: curves, buffer, trajectories, scores; it opens from a file or any web space.",
        ),
        "backup": (
            "data:backup",
            "Write all runs and the workbench's journal to one tar file; runs may continue.",
        ),
        "verify": (
            "data:verify",
            "Check each file of a run, or of all and the journal, against its checksums; end with 1 on damage.",
        ),
    },
    "evaluate": {
        "eval": ("evaluate:evaluate", "Score a model on benchmarks; Ctrl-C stops it, `exgrpo resume` continues it."),
        "chat": ("probe:chat", "Ask checkpoints or other models a prompt, in the prompt template of their run."),
        "judge": (
            "evaluate:judge",
            "Judge chains of thought; Ctrl-C stops the judge, `exgrpo resume` continues it without repeating requests.",
        ),
        "case": ("annotations:case_app", "Snowball cases, and the paper's rules for code in chains of thought."),
        "study": ("study:study_app", "The paper's tables: their runs and their numbers."),
        "sweep": (
            "sweep:sweep",
            "Run all combinations of listed values of fields as a study; again, what is missing.",
        ),
    },
    "look": {
        "runs": ("runs:runs", "List runs, newest first, all or those that a search finds; archived ones with --all."),
        "show": ("runs:show", "Show one run: state, newest metrics, evaluations, attempts and checkpoints."),
        "logs": ("runs:logs", "Print the log of a run's worker."),
        "query": ("query:query_app", "Print what pages show, one line a row, or as JSON, CSV or Parquet."),
        "mcp": ("agents:mcp", "Serve the queries to an agent, by MCP on standard input and output."),
        "annotate": (
            "annotations:annotate_app",
            "Names, tags and notes of runs; marks and verdicts on their trajectories.",
        ),
        "bin": ("annotations:bin_app", "Runs that have ended, moved out of the way; restored, or removed for good."),
    },
    "workbench": {
        "demo": (
            "demo:demo",
            "Train a tiny model with ExGRPO and with on-policy Dr.GRPO, then show both in the browser.",
        ),
        "view": (
            "view:view",
            "Show rollouts of any trainer, or runs, on pages that only read; nothing is written beside a cache.",
        ),
        "up": (
            "workbench:up",
            "Start the supervisor and the pages; Ctrl-C ends both; runs continue, or stop until the next start.",
        ),
        "doctor": (
            "doctor:doctor",
            "Check Python, PyTorch, GPU, Ray, verl, vLLM, database, ports and disk, and say what to do.",
        ),
        "db": ("data:database_app", "The database, which is an index of the run folders."),
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
