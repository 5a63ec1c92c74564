"""The command that runs a study over listed values of fields."""

from pathlib import Path
from typing import Annotated

import typer

from exgrpo.jobs.actions.studies import sweeps
from exgrpo.jobs.actions.studies.definition import Scale
from exgrpo.jobs.actions.studies.matrix import wanted_keys
from exgrpo.jobs.actions.studies.study_results import find_runs, state_of_keys
from exgrpo.jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, DatabaseUrl, RunsRoot, print_json, print_result
from exgrpo.jobs.cli.study import run_missing
from exgrpo.jobs.execution.supervisor.open_index import open_fresh_index


def sweep(
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="YAML file with `base` and `over`, which lists values for each field."),
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print what would be started, and start nothing.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Queue everything and return at once.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Run all combinations of the listed values. A second call runs what is still missing."""
    study = sweeps.sweep_of_file(file)
    keys = wanted_keys(study, Scale.OWN, study.cells, None)
    sweeps.refuse_unrunnable(runs_root, study)
    sweeps.refuse_changed(runs_root, study)
    if not dry_run:
        sweeps.keep(runs_root, study)
        run_missing(runs_root, database_url, study, keys, [], detach=detach)
        return
    with open_fresh_index(runs_root, database_url) as database:
        states = state_of_keys(find_runs(database, study), keys)
    if as_json:
        print_json([{"cell": key.cell, "seed": key.seed, "state": state} for key, state in states])
        return
    for note in study.notes:
        print_result(note)
    for key, state in states:
        print_result(f"{key.cell:<40} seed {key.seed:<6} {state}")
