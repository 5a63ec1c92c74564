"""The command that fills a database with made-up runs, derived from a recorded run that is trained if there is none."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from db.connections.opening import open_database
from db.connections.session import Database
from db.queries.run_filter import RunFilter
from db.queries.runs import list_runs
from db.synthetic.runs import SyntheticSize, add_synthetic_runs, refuse_more
from jobs.actions.run_actions import submit
from jobs.cli.following import POLL_SECONDS, RunFollower
from jobs.cli.options import DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot, print_result, print_status
from jobs.runs.control import TrainingError
from jobs.runs.directory import list_run_directories
from jobs.runs.lookup import find_run_id
from jobs.runs.status import RunStatus
from jobs.specs.train import load_preset
from jobs.supervisor.open_index import ingest_all

TEMPLATE_PRESET = "chains-exgrpo"
TEMPLATE_STEPS = 60
_MIN_STEPS = 20
"""A shorter run has hardly replayed anything."""


class SeedingError(TrainingError):
    """The recorded run to start from could not be made."""


def seed_demo(
    num_runs: Annotated[int, typer.Option("--runs", min=1, help="Runs to make.")] = 100,
    num_steps: Annotated[
        int, typer.Option("--steps", min=1, help="Steps of each run, with about 47 metric points a step.")
    ] = 500,
    num_trajectories: Annotated[
        int, typer.Option("--trajectories", min=1, help="Trajectories in all, about; most in the first run.")
    ] = 100_000,
    run: Annotated[
        str | None,
        typer.Option("--from", metavar="RUN", help="Recorded run to start from; else the newest."),
    ] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Add made-up runs, marked as synthetic, to the database, to try pages at scale.

    They are derived from one recorded run: the newest ExGRPO run of the runs root, or a short one of the built-in task
    that is trained first. Equal options and an equal recorded run give equal rows. They are in the database only,
    without run folders: `exgrpo db rebuild` removes them.
    """
    template = None if run is None else find_run_id(runs_root, run)
    add_made_up_runs(
        runs_root, database_url, SyntheticSize(num_runs, num_steps, num_trajectories), template, print_status
    )
    print_result(f"{num_runs:,} synthetic runs.")


def add_made_up_runs(
    runs_root: Path,
    database_url: str | None,
    size: SyntheticSize,
    run_id: str | None,
    print_status: Callable[[str], None],
) -> None:
    """Add made-up runs to the database; without `run_id` from the newest suitable run, trained if there is none.

    Raises:
        SeedingError: The training of the run to start from failed.
        SyntheticRunsError: The database holds made-up runs already, or the recorded run has no trajectories.
    """
    database = open_database(database_url, runs_root)
    try:
        refuse_more(database)
        template = run_id or recorded_run(runs_root, database_url, print_status)
        ingest_all(runs_root, database_url)
        add_synthetic_runs(database, template, size, print_status)
    finally:
        database.close()


def recorded_run(runs_root: Path, database_url: str | None, print_status: Callable[[str], None]) -> str:
    """Return the newest run that made-up runs can be derived from, trained now if there is none.

    Raises:
        SeedingError: Its training failed.
    """
    ingest_all(runs_root, database_url)
    database = open_database(database_url, runs_root)
    try:
        run_id = _suitable_run(database, runs_root)
    finally:
        database.close()
    run_id = run_id or _train(runs_root, database_url, print_status)
    print_status(f"Recorded run: {run_id}.")
    return run_id


def _suitable_run(database: Database, runs_root: Path) -> str | None:
    """Return the newest finished run of ExGRPO, None if there is none."""
    recorded = {run.run_id for run in list_run_directories(runs_root)}
    for row in list_runs(database, RunFilter(statuses=("finished",), is_archived=None), limit=None):
        if row.run_id in recorded and row.method == "ExGRPO" and row.step >= _MIN_STEPS:
            return row.run_id
    return None


def _train(runs_root: Path, database_url: str | None, print_status: Callable[[str], None]) -> str:
    print_status(f"No suitable recorded run; training {TEMPLATE_STEPS} steps of {TEMPLATE_PRESET}.")
    spec = load_preset(TEMPLATE_PRESET).model_copy(update={"num_steps": TEMPLATE_STEPS})
    run_id = submit(runs_root, spec)
    follower = RunFollower(runs_root, database_url, run_id)
    try:
        while not (state := follower.poll()).is_ended:
            time.sleep(POLL_SECONDS)
        follower.finish()
    finally:
        follower.close()
    if state.status is not RunStatus.FINISHED:
        raise SeedingError(f"Run {run_id}, which made-up runs start from, {state.status}: {state.reason}")
    return run_id
