"""The commands on chains of thought: judges, verdicts, verdicts of users, and snowball cases."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from db.queries.cases import find_cases, list_case_sets, saved_cases
from db.queries.judge_work import agreement, get_verdicts, list_judge_jobs, list_verdicts
from db.rows.verdicts import VerdictFilter
from jobs.actions.annotations import mark_case, set_verdict
from jobs.analysis.case_text import cases_as_json, cases_as_markdown
from jobs.analysis.report import find_calibration
from jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    Limit,
    RunName,
    RunsRoot,
    TrajectoryNumber,
    command_group,
    counted,
    print_json,
    print_result,
    print_status,
)
from jobs.runs.lookup import CommandError, find_judge_id, find_run_id
from jobs.specs.train import SpecError
from jobs.supervisor.open_index import open_fresh_index

if TYPE_CHECKING:
    from db.rows.verdicts import JudgedRow

cases_app = command_group("Snowball cases: find, keep in sets, and write as files.")
JudgeRun = Annotated[
    str | None, typer.Option("--judge", help="Judge's job whose verdicts count; without it the task's oracle.")
]
_SIGNS = {True: "valid", False: "invalid", None: "-"}


def judges(
    run: Annotated[str | None, typer.Argument(metavar="RUN", help="Training run; all judges without it.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print judges' jobs with votes, cost, calibration, and agreement with the oracle and with users."""
    run_id = None if run is None else find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        jobs = list_judge_jobs(database, run_id)
        agreed = {job.judge_run_id: agreement(database, run_id, job.judge_run_id) for job in jobs} if run_id else {}
        calibrations = {job.judge_run_id: find_calibration(database, job.judge, job.prompt) for job in jobs}
    if as_json:
        judged = [(job, agreed.get(job.judge_run_id, []), calibrations[job.judge_run_id]) for job in jobs]
        print_json([{"job": job, "agreement": rows, "calibration": item} for job, rows, item in judged])
        return
    if not jobs:
        print_status("No judge has judged it yet; `exgrpo judge RUN` starts one." if run else
             "No judge jobs yet; `exgrpo judge RUN` starts one.")  # fmt: skip
    for job in jobs:
        calibration = calibrations[job.judge_run_id]
        print_result(
            f"{job.judge_run_id}  {job.status:<10} {job.judge}, prompt {job.prompt or '-'}, "
            f"on {job.source}: {job.num_votes} votes, {job.num_requests} requests, {job.num_tokens} tokens"
        )
        if calibration is not None:
            rates = (("sensitivity", calibration.sensitivity), ("specificity", calibration.specificity))
            figures = ", ".join(f"{name} {rate.value:.3f}" for name, rate in rates)
            print_result(f"    {figures}, kappa {calibration.kappa:.3f} on {calibration.num_items} labelled items")
        for row in agreed.get(job.judge_run_id, []):
            agree = (row.num_both_valid + row.num_both_invalid) / row.num_compared
            print_result(f"    agrees with {row.other} on {agree:.3f} of {row.num_compared}")


def verdicts(
    run: RunName,
    judge_run: JudgeRun = None,
    which: Annotated[str, typer.Option(help="all, judged, unjudged or disputed.")] = "all",
    limit: Limit = 50,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print answer-correct trajectories with the verdicts of judge, oracle and users, newest first."""
    if which not in list(VerdictFilter):
        raise SpecError(f"--which: expected one of {', '.join(VerdictFilter)}, got {which!r}.")
    run_id, judge_run_id = find_run_id(runs_root, run), find_judge_id(runs_root, judge_run)
    with open_fresh_index(runs_root, database_url) as database:
        rows = list_verdicts(database, run_id, judge_run_id, VerdictFilter(which), limit=limit)
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_status(f"No answer-correct trajectory of {run_id} matches ({which}).")
    _print_verdicts(rows, has_judge=judge_run_id is not None)


def override(
    run: RunName,
    trajectory: TrajectoryNumber,
    verdict: Annotated[str, typer.Argument(metavar="VERDICT", help="valid, invalid, or none to remove it.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Give your own verdict on a chain of thought; it overrides every judge's."""
    is_valid = {"valid": True, "invalid": False, "none": None}
    if verdict not in is_valid:
        raise CommandError(f"VERDICT: expected valid, invalid or none, got {verdict!r}.")
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        row = get_verdicts(database, run_id, trajectory)
    if row is None:
        raise CommandError(f"TRAJECTORY: {run_id} has no trajectory {trajectory}; `exgrpo verdicts` lists them.")
    set_verdict(runs_root, run_id, row.attempt, trajectory, is_valid[verdict])


@cases_app.command("find")
def find(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    run: RunName,
    judge_run: JudgeRun = None,
    only_telling: Annotated[bool, typer.Option("--telling", help="Only a valid chain beside an invalid one.")] = False,
    limit: Limit = 5,
    case_set: Annotated[str | None, typer.Option("--keep", help="Save the cases in this set.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print snowball cases of a run: the correct responses of lowest and highest entropy to a question."""
    run_id, judge_run_id = find_run_id(runs_root, run), find_judge_id(runs_root, judge_run)
    with open_fresh_index(runs_root, database_url) as database:
        cases = find_cases(database, run_id, judge_run_id, limit=limit, only_telling=only_telling)
    for case in cases if case_set is not None else ():
        mark_case(runs_root, str(case_set), case.saved)
    if as_json:
        print_json(cases)
    elif cases:
        print_result(cases_as_markdown("found", cases))
    else:
        print_status(f"No case in {run_id}: no question has two matching correct responses in one step.")


@cases_app.command("sets")
def sets(runs_root: RunsRoot = DEFAULT_RUNS_ROOT, database_url: DatabaseUrl = None, as_json: AsJson = False) -> None:
    """Print the saved sets of cases."""
    with open_fresh_index(runs_root, database_url) as database:
        rows = list_case_sets(database)
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_status("No case is kept yet; `exgrpo cases find RUN --keep SET` keeps what it finds.")
    for row in rows:
        print_result(f"{row.name}: {counted(row.num_cases, 'case', 'cases')} of {counted(row.num_runs, 'run', 'runs')}")


@cases_app.command("export")
def export(
    case_set: Annotated[str, typer.Argument(metavar="SET", help="Name of the set.")],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="File to write; standard output without it.")
    ] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a set of cases as Markdown in the paper's layout, or as JSON (also to a file that ends in .json)."""
    with open_fresh_index(runs_root, database_url) as database:
        cases = saved_cases(database, case_set)
    if not cases:
        raise CommandError(f"SET: no case is kept in {case_set!r}; `exgrpo cases sets` lists all sets.")
    is_json = as_json or (out is not None and out.suffix == ".json")
    text = cases_as_json(case_set, cases) if is_json else cases_as_markdown(case_set, cases)
    if out is None:
        print_result(text)
    else:
        out.write_text(text, encoding="utf-8")


def _print_verdicts(rows: "list[JudgedRow]", has_judge: bool) -> None:
    for row in rows:
        votes = f"{row.num_valid}/{row.num_invalid}/{row.num_unjudged}"
        judged = f"judge {_SIGNS[row.by_judge]:<8}votes {votes:<8} " if has_judge else ""
        print_result(f"{row.trajectory_id:>8}  step {row.step:<6} entropy {row.mean_entropy:.4f}  {judged}"
            f"oracle {_SIGNS[row.oracle]:<8} user {_SIGNS[row.user]:<8} {row.reason}")  # fmt: skip
