"""The command that executes recorded steps again."""

from collections.abc import Iterable
from typing import Annotated

import typer

from exgrpo.db.queries.selections import steps_with_trajectories
from exgrpo.jobs.actions.replay.facts import Outcome, ReplayRow, summed_over
from exgrpo.jobs.actions.replay.loss import replay_step
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    EXIT_FAILURE,
    AsJson,
    DatabaseUrl,
    RunName,
    RunsRoot,
    Settings,
    print_json,
    print_result,
    print_status,
    table_console,
)
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.lookup import find_run_id
from exgrpo.jobs.training.threads import limit_threads


def replay(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    run: RunName,
    step: Annotated[int | None, typer.Option("--step", min=1, help="Execute this step.")] = None,
    steps: Annotated[
        str | None,
        typer.Option(
            "--steps", metavar="A:B", help="Execute the recorded steps from A to B, both included, and sum up."
        ),
    ] = None,
    settings: Settings = None,
    method: Annotated[
        str | None,
        typer.Option(
            "--method", metavar="NAME", help="Compare with this replay method or the algorithm of this preset."
        ),
    ] = None,
    updates: Annotated[
        bool,
        typer.Option("--update", help="Execute the update too, with the model of the checkpoint before the step."),
    ] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Execute a recorded step again, perhaps with other settings.

    Exits with 1 if the record differs from what its settings give.
    """
    run_id = find_run_id(runs_root, run)
    wanted = _numbers(step, steps)
    with open_fresh_index(runs_root, database_url) as database:
        recorded = [number for number in steps_with_trajectories(database, run_id) if number in wanted]
        other = (settings or (), method)
        numbers = recorded or wanted[:1]
        rows = [row for number in numbers for row in replay_step(database, runs_root, run_id, number, *other)]
        if updates:
            rows = [row for row in rows if row.outcome is not Outcome.NO_EFFECT]  # the update shows the effect
            limit_threads()
            from exgrpo.jobs.actions.replay.update import execute_updates  # loads torch

            rows += execute_updates(database, runs_root, run_id, numbers, *other)
            rows.sort(key=lambda row: row.step)
    shown = summed_over(rows) if steps else rows
    if as_json:
        print_json(rows)
    else:
        _print_table(shown, is_sum=bool(steps))
        for row in shown:
            if row.outcome is Outcome.DIFFERS:
                print_result(f"First difference: step {row.step}, {row.stage}, {row.compared}, {row.first_difference}.")
    if any(row.outcome is Outcome.DIFFERS for row in shown) and not settings and method is None:
        raise typer.Exit(EXIT_FAILURE)


def _numbers(step: int | None, steps: str | None) -> range:
    if (step is None) == (steps is None):
        raise CommandError("--step: expected either --step N or --steps A:B.")
    if step is not None:
        return range(step, step + 1)
    first, separator, last = str(steps).partition(":")
    if not (separator and first.isdecimal() and last.isdecimal() and 1 <= int(first) <= int(last)):
        raise CommandError(f"--steps: expected A:B with 1 <= A <= B, such as 10:20, got {steps!r}.")
    return range(int(first), int(last) + 1)


def _print_table(rows: Iterable[ReplayRow], is_sum: bool) -> None:
    from rich.table import Table

    table = Table("Step", "Stage", "Compared", "Values", "Different", "Largest difference", "Result", box=None)
    notes: dict[str, None] = {}
    for row in rows:
        gap = "" if row.largest_difference != row.largest_difference else f"{row.largest_difference:.3g}"
        step = "" if is_sum and row.outcome is not Outcome.DIFFERS else str(row.step)
        cells = (step, row.stage, row.compared, f"{row.num_compared:,}", f"{row.num_different:,}", gap)
        table.add_row(*cells, row.outcome)
        if row.note:
            notes[f"{row.compared}: {row.note}"] = None
    table_console().print(table)
    for note in notes:
        print_status(note)
