"""The commands that name, mark and put aside runs and trajectories, and that collect cases."""

from pathlib import Path
from typing import Annotated

import typer

from exgrpo.db.queries.cases import find_cases, saved_cases
from exgrpo.db.queries.judging import get_verdicts
from exgrpo.db.queries.trajectories import get_trajectory, marks_of
from exgrpo.db.rows.trajectories import MarkedTrajectory
from exgrpo.jobs.actions import run_actions, run_bin
from exgrpo.jobs.actions.annotations import mark_case, mark_trajectory, set_verdict
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    JudgeRun,
    Limit,
    RunName,
    RunsRoot,
    TrajectoryNumber,
    command_group,
    print_json,
    print_result,
    print_status,
)
from exgrpo.jobs.evaluation.analysis.case_text import as_latex, as_markdown, cases_as_json, excerpts_of
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import CommandError
from exgrpo.jobs.runs.lookup import find_judge_id, find_run_id

annotate_app = command_group("Name, tag and note runs. Also marks and judges trajectories.")
bin_app = command_group("Delete and restore runs. Also removes deleted runs for good.")
case_app = command_group("Find, keep and export snowball cases.")


@annotate_app.command("rename")
def rename(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Give a run another name."""
    run_actions.rename(runs_root, find_run_id(runs_root, run), name)


@annotate_app.command("tag")
def tag(
    run: RunName,
    name: Annotated[str, typer.Argument(metavar="TAG", help="The tag.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    removes: Annotated[bool, typer.Option("--remove", help="Remove the tag.")] = False,
) -> None:
    """Add a tag to a run, or remove it."""
    run_actions.tag(runs_root, find_run_id(runs_root, run), name, is_set=not removes)


@annotate_app.command("note")
def note(
    run: RunName,
    text: Annotated[str, typer.Argument(metavar="TEXT", help="The note.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Add a note to a run."""
    run_actions.note(runs_root, find_run_id(runs_root, run), text)


@annotate_app.command("archive")
def archive(
    run: RunName,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    undoes: Annotated[bool, typer.Option("--undo", help="Show it again.")] = False,
) -> None:
    """Hide a run that has ended from the list; its files stay."""
    run_id = find_run_id(runs_root, run)
    run_actions.archive(runs_root, run_id, is_archived=not undoes)
    print_result(f"{run_id} is listed again." if undoes else f"{run_id} is archived; `exgrpo runs --all` lists it.")


@annotate_app.command("mark")
def mark(
    run: RunName,
    trajectory: TrajectoryNumber,
    name: Annotated[str, typer.Argument(metavar="MARK", help="Name of the mark.")],
    comment: Annotated[str, typer.Option(help="Comment on the trajectory.")] = "",
    undo: Annotated[bool, typer.Option("--undo", help="Remove the mark.")] = False,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Mark a trajectory, with a comment; `exgrpo query marks` lists all marks."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        row = get_trajectory(database, run_id, trajectory)
        marks = [] if row is None else marks_of(database, run_id, row.attempt, trajectory)
    if row is None:
        raise CommandError(
            f"{run_id}: has no trajectory {trajectory}; `exgrpo query trajectories {run_id}` lists them."
        )
    if undo and name not in {other.mark for other in marks}:
        raise CommandError(
            f"{run_id}: trajectory {trajectory} does not have the mark {name!r}; `exgrpo query marks` lists all."
        )
    mark_trajectory(runs_root, MarkedTrajectory(run_id, row.attempt, trajectory, name, comment), is_kept=not undo)


@annotate_app.command("verdict")
def verdict(
    run: RunName,
    trajectory: TrajectoryNumber,
    value: Annotated[str, typer.Argument(metavar="VERDICT", help="valid, invalid, or none to remove it.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Give your own verdict on a chain of thought; it overrides every judge's."""
    is_valid = {"valid": True, "invalid": False, "none": None}
    if value not in is_valid:
        raise CommandError(f"VERDICT: expected valid, invalid or none, got {value!r}.")
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        row = get_verdicts(database, run_id, trajectory)
    if row is None:
        raise CommandError(f"TRAJECTORY: {run_id} has no trajectory {trajectory}; `exgrpo query verdicts` lists them.")
    set_verdict(runs_root, run_id, row.attempt, trajectory, is_valid[value])


@bin_app.command("list")
def list_bin(runs_root: RunsRoot = DEFAULT_RUNS_ROOT) -> None:
    """List the runs in the bin."""
    deleted = run_bin.list_deleted(runs_root)
    print_result("\n".join(f"{run_id} {name}" for run_id, name in deleted.items()) or "The bin is empty.")


@bin_app.command("delete")
def delete(run: RunName, runs_root: RunsRoot = DEFAULT_RUNS_ROOT) -> None:
    """Move a run that has ended into the bin."""
    run_id = find_run_id(runs_root, run)
    run_bin.delete(runs_root, run_id)
    print_result(f"{run_id} is in the bin; `exgrpo bin restore {run_id}` takes it out again.")


@bin_app.command("restore")
def restore(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Run id, as `exgrpo bin list` prints it.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
) -> None:
    """Take a run out of the bin."""
    run_bin.restore(runs_root, run)
    print_result(f"{run} is listed again.")


@bin_app.command("empty")
def empty(runs_root: RunsRoot = DEFAULT_RUNS_ROOT) -> None:
    """Remove everything in the bin for good."""
    print_result(f"{run_bin.empty(runs_root)} runs removed.")


@case_app.command("find")
def find(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    run: RunName,
    judge_run: JudgeRun = None,
    only_telling: Annotated[
        bool, typer.Option("--telling", help="Only cases with a valid and an invalid chain of the same question.")
    ] = False,
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
        print_result(as_markdown("Snowball cases", excerpts_of(cases)))
    else:
        print_status(f"No case in {run_id}: no question has two matching correct responses in one step.")


@case_app.command("export")
def export(
    case_set: Annotated[str, typer.Argument(metavar="SET", help="Name of the set.")],
    out: Annotated[Path | None, typer.Argument(metavar="OUT", help="File to write. Default: standard output.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Write a set of cases in the paper's layout: as LaTeX (.tex), as JSON (.json or --json), else as Markdown."""
    with open_fresh_index(runs_root, database_url) as database:
        cases = saved_cases(database, case_set)
    if not cases:
        raise CommandError(f"SET: no case is kept in {case_set!r}; `exgrpo query case-sets` lists all sets.")
    ending = ".json" if as_json else "" if out is None else out.suffix
    excerpts = excerpts_of(cases)
    text = (
        cases_as_json(case_set, cases)
        if ending == ".json"
        else as_latex(excerpts)
        if ending == ".tex"
        else as_markdown(f"Snowball cases: {case_set}", excerpts)
    )
    if out is None:
        print_result(text)
    else:
        out.write_text(text, encoding="utf-8")
