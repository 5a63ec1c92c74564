"""Commands that rename runs, delete them, and bring deleted ones back."""

from typing import Annotated

import typer

from jobs.actions import run_actions
from jobs.actions import run_bin as actions
from jobs.cli.options import DEFAULT_RUNS_ROOT, RunName, RunsRoot, print_result
from jobs.runs.lookup import find_run_id


def rename(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Give a run another name."""
    run_actions.rename(runs_root, find_run_id(runs_root, run), name)


def delete(run: RunName, runs_root: RunsRoot = DEFAULT_RUNS_ROOT) -> None:
    """Move a run that has ended into the bin; `exgrpo bin` restores it or empties the bin."""
    run_id = find_run_id(runs_root, run)
    actions.delete(runs_root, run_id)
    print_result(f"{run_id} is in the bin; `exgrpo bin --restore {run_id}` takes it out again.")


def list_bin(
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    restored: Annotated[str | None, typer.Option("--restore", metavar="RUN", help="Take this run out again.")] = None,
    empties: Annotated[bool, typer.Option("--empty", help="Remove everything in the bin for good.")] = False,
) -> None:
    """List the runs in the bin, take one out again, or remove them for good."""
    if restored is not None:
        actions.restore(runs_root, restored)
        print_result(f"{restored} is listed again.")
    elif empties:
        print_result(f"{actions.empty(runs_root)} runs removed.")
    else:
        deleted = actions.list_deleted(runs_root)
        print_result("\n".join(f"{run_id} {name}" for run_id, name in deleted.items()) or "The bin is empty.")
