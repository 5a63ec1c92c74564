"""Commands that import and export runs and maintain the database."""

from pathlib import Path
from typing import Annotated

import typer

from db.connections.opening import open_database
from db.connections.schema import current_revision
from jobs.actions.adoption import adopt as adopt_dump
from jobs.actions.archive import export_run, import_run
from jobs.actions.model_export import export_model as export_policy
from jobs.actions.verification import verify_run
from jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    DatabaseUrl,
    RunName,
    RunsRoot,
    command_group,
    print_result,
    print_status,
)
from jobs.cli.verify import damage_sentence
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import find_run_id, open_run
from jobs.supervisor.open_index import rebuild_index

MAX_BAD_LINES = 20
"""Bad lines of a dump that are printed."""

database_app = command_group("The database, which is an index of the run folders.")


def import_(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="Folder or .tar.gz file of a run.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    trusts_pickles: Annotated[
        bool, typer.Option("--trust-pickles", help="Accept files that can run code when they are read (verl's).")
    ] = False,
) -> None:
    """Copy a run from elsewhere into the runs root.

    What of it is damaged is said on stderr.
    """
    run_id = import_run(source, runs_root, trusts_pickles=trusts_pickles)
    _print_damage(open_run(runs_root, run_id))
    print_result(run_id)


def _print_damage(run: RunDirectory) -> None:
    for damage in verify_run(run):
        print_status(damage_sentence(damage))


def adopt(
    folder: Annotated[
        Path, typer.Argument(metavar="DIR", help="Folder of rollout dumps: verl's trainer.rollout_data_dir.")
    ],
    name: Annotated[str, typer.Option(help="Name of the run.")] = "adopted verl run",
    model: Annotated[str, typer.Option(help="The model that was trained, as a note.")] = "unknown",
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Import the rollout dumps of a stock verl run, so that its samples can be browsed."""
    adopted = adopt_dump(folder, runs_root, name, model)
    for sentence in adopted.bad_lines[:MAX_BAD_LINES]:
        print_status(sentence)
    if len(adopted.bad_lines) > MAX_BAD_LINES:
        print_status(f"... and {len(adopted.bad_lines) - MAX_BAD_LINES} more lines that are no rollouts.")
    print_status(f"{adopted.num_rollouts:,} rollouts of {adopted.num_steps:,} steps.")
    print_result(adopted.run_id)


def export(
    run: RunName,
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="A .tar.gz file, or a folder to copy it into.")
    ] = None,
    overwrites: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Write a run as one .tar.gz file, or copy its folder; without OUT as RUN_ID.tar.gz here.

    What of it is damaged is said on stderr.
    """
    folder = open_run(runs_root, find_run_id(runs_root, run))
    _print_damage(folder)
    print_result(str(export_run(folder, out or Path(f"{folder.run_id}.tar.gz"), overwrites=overwrites)))


def export_model(
    target: Annotated[str, typer.Argument(metavar="RUN@STEP", help="Checkpoint of a run; RUN@last is its newest.")],
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="New folder for the model.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Write the model of a checkpoint as a new folder, which transformers and vLLM load."""
    print_result(str(export_policy(runs_root, target, folder)))


@database_app.command("upgrade")
def upgrade(runs_root: RunsRoot = DEFAULT_RUNS_ROOT, database_url: DatabaseUrl = None) -> None:
    """Upgrade the database's schema."""
    database = open_database(database_url, runs_root)
    try:
        print_result(f"The database has schema {current_revision(database)}.")
    finally:
        database.close()


@database_app.command("rebuild")
def rebuild(runs_root: RunsRoot = DEFAULT_RUNS_ROOT, database_url: DatabaseUrl = None) -> None:
    """Drop the database and build it again from the run folders and the journal."""
    num_runs = rebuild_index(runs_root, database_url)
    print_result(f"Built again from {num_runs} runs.")
