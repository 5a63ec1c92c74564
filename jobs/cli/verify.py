"""The command that checks files against their checksums."""

import dataclasses
from typing import Annotated

import typer

from jobs.actions.verification import Damage, verify_root, verify_run
from jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, RunsRoot, print_json, print_result
from jobs.runs.lookup import find_run_id, open_run


def verify(
    run: Annotated[str | None, typer.Argument(help="Id, beginning of an id, or name of a run; none means all.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """Check every file of a run, or of all and the journal, and say what can be recovered; ends with 1 on damage."""
    folder = None if run is None else open_run(runs_root, find_run_id(runs_root, run))
    damages = verify_root(runs_root) if folder is None else verify_run(folder)
    if as_json:
        print_json([dataclasses.asdict(damage) for damage in damages])
    for damage in [] if as_json else damages:
        print_result(damage_sentence(damage))
    if not damages and not as_json:
        print_result("No damage found.")
    if damages:
        raise typer.Exit(1)


def damage_sentence(damage: Damage) -> str:
    """Return what is damaged, and what can be recovered, after the run's id."""
    run_prefix = f"{damage.run_id}: " if damage.run_id else ""
    return f"{run_prefix}{damage.what} {damage.remedy}"
