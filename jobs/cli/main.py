"""The `exgrpo` command: one table of all commands, each of which is imported when it is called."""

from importlib import import_module
from typing import Any

import typer

from exgrpo_core.durable_files import keep_private
from jobs.cli.options import FriendlyGroup, command_group

COMMANDS = {
    "up": ("workbench:up", "Start the supervisor and the pages; Ctrl-C ends both; runs continue."),
    "demo": (
        "demo:demo",
        "Train a tiny model with ExGRPO and with on-policy Dr.GRPO, then show both in the browser.",
    ),
    "train": (
        "train:train",
        "Train a model; Ctrl-C stops the run at its next step with a checkpoint, a second one leaves it running.",
    ),
    "probe": (
        "probe:probe",
        "Sample a few answers before a run: pass, format and truncation rates, entropy, and what to do if bad.",
    ),
    "eval": (
        "evaluate:evaluate",
        "Score a model on benchmarks; Ctrl-C stops it, `exgrpo resume` continues it.",
    ),
    "chat": (
        "chat:chat",
        "Ask checkpoints or other models a prompt, in the prompt template of their run.",
    ),
    "benchmarks": (
        "evaluate:benchmarks",
        "List the benchmarks that `eval` knows: the paper's, and your own in the workbench's folder.",
    ),
    "scores": (
        "scores:scores",
        "List scores with half of their 95% intervals, newest first; of one evaluation over k answers; or compare two.",
    ),
    "contamination": (
        "contamination:contamination",
        "Look for signs that a model has seen benchmark questions; the page Benchmarks keeps the reports.",
    ),
    "judge": (
        "judge:judge",
        "Judge chains of thought; Ctrl-C stops the judge, `exgrpo resume` continues it without repeating requests.",
    ),
    "judges": (
        "chains_of_thought:judges",
        "Print judges' jobs with votes, cost, calibration, and agreement with the oracle and with users.",
    ),
    "verdicts": (
        "chains_of_thought:verdicts",
        "Print answer-correct trajectories with the verdicts of judge, oracle and users, newest first.",
    ),
    "override": (
        "chains_of_thought:override",
        "Give your own verdict on a chain of thought; it overrides every judge's.",
    ),
    "mark": ("marks:mark", "Mark a trajectory, with a comment; the workbench lists all marked trajectories."),
    "marks": ("marks:marks", "List the marks on trajectories, or the trajectories with one mark."),
    "buffer": (
        "experience:buffer",
        "Print the replay buffer after a step: which question is in which bucket, and which are retired.",
    ),
    "audit": (
        "experience:audit",
        "Print a step's selections for replay with all candidates, and the run's choices that contradict scores.",
    ),
    "retired": (
        "experience:retired",
        "Write a run's retired questions as a benchmark: `exgrpo eval RUN@STEP -b retired=FILE` tries them again.",
    ),
    "trajectories": ("experience:trajectories", "List a run's trajectories, newest first."),
    "trajectory": (
        "experience:trajectory",
        "Print one trajectory with its question and lineage: generation, bucket moves, replays, retirement.",
    ),
    "curves": (
        "experience:curves",
        "Print curves of runs as JSON: by run and metric, pairs of step and value, thinned to about a thousand.",
    ),
    "journal": ("experience:journal", "List the requests of users, newest first."),
    "presets": ("train:presets", "List the presets with the engine that each runs on; with --json, with every field."),
    "runs": ("runs:runs", "List runs, newest first; archived ones with --all."),
    "show": ("runs:show", "Show one run: state, newest metrics, evaluations, attempts and checkpoints."),
    "logs": ("runs:logs", "Print the log of a run's worker."),
    "stop": ("runs:stop", "Ask a run to stop at its next step, with a checkpoint."),
    "resume": (
        "runs:resume",
        "Queue a run again from its newest complete checkpoint, and say what experience it keeps.",
    ),
    "clone": (
        "runs:clone",
        "Print a job's specification with changed fields, or queue a new job with it.",
    ),
    "branch": ("runs:branch", "Queue a new run that continues from a checkpoint of another."),
    "tag": ("runs:tag", "Add a tag to a run, or remove it."),
    "note": ("runs:note", "Add a note to a run."),
    "archive": ("runs:archive", "Hide a run that has ended from the list; its files stay."),
    "rename": ("run_bin:rename", "Give a run another name."),
    "delete": (
        "run_bin:delete",
        "Move a run that has ended into the bin; `exgrpo bin` restores it or empties the bin.",
    ),
    "bin": ("run_bin:list_bin", "List the runs in the bin, take one out again, or remove them for good."),
    "import": ("data:import_", "Copy a run from elsewhere into the runs root."),
    "adopt": ("data:adopt", "Import the rollout dumps of a stock verl run, so that its samples can be browsed."),
    "export": (
        "data:export",
        "Write a run as one .tar.gz file, or copy its folder; without OUT as RUN_ID.tar.gz here.",
    ),
    "export-model": (
        "data:export_model",
        "Write the model of a checkpoint as a new folder, which transformers and vLLM load.",
    ),
    "backup": (
        "backup:backup",
        "Write all runs, the workbench's journal and SQLite's database to one file; runs may continue.",
    ),
    "verify": (
        "verify:verify",
        "Check every file of a run, or of all and the journal, and say what can be recovered; ends with 1 on damage.",
    ),
    "restore": (
        "backup:restore",
        "Unpack a backup into a new or empty runs root; `exgrpo resume` continues runs that it interrupted.",
    ),
    "seed-demo": (
        "seeding:seed_demo",
        "Add made-up runs, marked as synthetic, to the database, to try pages at scale.",
    ),
    "doctor": (
        "doctor:doctor",
        "Check Python, PyTorch, GPU, Ray, verl, vLLM, database, ports and disk, and say what to do.",
    ),
    "db": ("data:database_app", "The database, which is an index of the run folders."),
    "alerts": ("alerts:alerts_app", "Messages to you when a run fails, stalls or collapses."),
    "analyse": ("judge:analyse_app", "Analyse recorded chains of thought."),
    "cases": ("chains_of_thought:cases_app", "Snowball cases: find, keep in sets, and write as files."),
    "study": ("study:study_app", "The paper's tables: their runs and their numbers."),
}
"""Module of this folder, function or group in it, and line in the list of commands, by name."""


class LazyGroup(FriendlyGroup):
    """The commands of the table; listing them imports none."""

    def list_commands(self, ctx: Any) -> list[str]:  # noqa: ANN401, ARG002 - the signature of typer's class
        """Return the names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:  # noqa: ANN401, ARG002 - the signature of typer's class
        """Import one command; None where the table has no such name."""
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name][0].split(":")
        loaded = getattr(import_module(f"jobs.cli.{module}"), attribute)
        if not isinstance(loaded, typer.Typer):
            alone = command_group("")
            alone.command(cmd_name)(loaded)
            loaded = alone
        command = typer.main.get_command(loaded)
        command.name = cmd_name
        return command

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002 - likewise
        """List the commands with their lines of the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in COMMANDS.items()])


app = command_group("Train with ExGRPO, and see what its replay buffer does.", "exgrpo", LazyGroup)


@app.callback()
def _no_options() -> None:
    """Make a group of an application whose commands are not registered here."""


def main() -> None:
    """Run the command that the command line names; the files that it makes are its user's alone."""
    keep_private()
    app()
