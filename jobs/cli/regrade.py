"""The command that grades recorded answers again."""

from dataclasses import asdict
from typing import Annotated

import typer

from jobs.actions.regrading import regrade as regrade_recorded
from jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, RunName, RunsRoot, print_json, print_result, print_status
from jobs.grading.schemes import Scheme
from jobs.runs.lookup import find_run_id

MAX_CHANGES = 20
"""Changed answers that are printed; `--json` has all."""


def regrade(
    run: RunName,
    scheme: Annotated[
        Scheme, typer.Option(help="Of a training run; an evaluation is graded by all three.")
    ] = Scheme.TRAINING,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """Grade recorded answers again, by another scheme or a newer grader; both results are kept."""
    regraded = regrade_recorded(runs_root, find_run_id(runs_root, run), scheme)
    if as_json:
        print_json(asdict(regraded))
        return
    for change in regraded.changes[:MAX_CHANGES]:
        print_status(f"{change.answer}, {change.scheme}: {change.before or 'none'}, now {change.after}")
    if len(regraded.changes) > MAX_CHANGES:
        print_status(f"... and {len(regraded.changes) - MAX_CHANGES:,} more; --json lists all.")
    for name, num_correct in regraded.num_correct_before.items():
        after = regraded.num_correct_after[name]
        print_status(f"{name}: {num_correct:,} of {regraded.num_answers:,} correct before, {after:,} now.")
    print_result(regraded.result)
