"""The command that fills a database with made-up runs, to try and to measure the pages."""

from typing import Annotated

import typer

from db.synthetic.runs import SyntheticSize
from jobs.cli.options import DEFAULT_RUNS_ROOT, DatabaseUrl, RunsRoot, print_result, print_status
from jobs.cli.seeding import seed_demo as seed
from jobs.runs.lookup import find_run_id


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
    seed(runs_root, database_url, SyntheticSize(num_runs, num_steps, num_trajectories), template, print_status)
    print_result(f"{num_runs:,} synthetic runs.")
