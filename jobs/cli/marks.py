"""The commands on marked trajectories."""

from typing import Annotated

import typer

from db.queries.trajectories import get_trajectory
from db.queries.trajectory_marks import list_marks, marked_trajectories, marks_of
from db.rows.marks import MarkedTrajectory
from jobs.actions.annotations import mark_trajectory
from jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    RunName,
    RunsRoot,
    TrajectoryNumber,
    counted,
    print_json,
    print_result,
    print_status,
)
from jobs.runs.lookup import CommandError, find_run_id
from jobs.supervisor.open_index import open_fresh_index


def mark(
    run: RunName,
    trajectory: TrajectoryNumber,
    name: Annotated[str, typer.Argument(metavar="MARK", help="Name of the mark.")],
    comment: Annotated[str, typer.Option(help="Comment on the trajectory.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Remove the mark.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Mark a trajectory, with a comment; the workbench lists all marked trajectories."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        row = get_trajectory(database, run_id, trajectory)
        marks = [] if row is None else marks_of(database, run_id, row.attempt, trajectory)
    if row is None:
        raise CommandError(f"{run_id}: has no trajectory {trajectory}.")
    if undo and name not in {other.mark for other in marks}:
        raise CommandError(f"{run_id}: trajectory {trajectory} does not have the mark {name!r}.")
    mark_trajectory(runs_root, MarkedTrajectory(run_id, row.attempt, trajectory, name, comment), is_kept=not undo)


def marks(
    name: Annotated[str | None, typer.Argument(metavar="MARK", help="Mark whose trajectories to list.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List the marks on trajectories, or the trajectories with one mark."""
    with open_fresh_index(runs_root, database_url) as database:
        counts = list_marks(database)
        rows = [] if name is None else marked_trajectories(database, name)
    if as_json:
        print_json(counts if name is None else rows)
        return
    if not counts:
        print_status("No trajectory is marked yet; `exgrpo mark RUN TRAJECTORY MARK` marks one.")
    elif name is not None and not rows:
        print_status(
            f"No trajectory has the mark {name!r}; the marks are: {', '.join(count.mark for count in counts)}."
        )
    for count in counts if name is None else []:
        num_trajectories = counted(count.num_trajectories, "trajectory", "trajectories")
        print_result(f"{count.mark}: {num_trajectories} of {counted(count.num_runs, 'run', 'runs')}")
    for row in rows:
        marked = row.marked
        print_result(
            f"{marked.run_id}  {marked.trajectory_id:>8}  step {row.step:>5}  reward {row.reward:g}  {marked.comment}"
        )
