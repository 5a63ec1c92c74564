"""The commands that list, show, stop, resume and clone runs."""

import json
import math
import time
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.run_values import UNDERSTOOD
from exgrpo.db.queries.runs import list_runs
from exgrpo.db.rows.display_names import BATCH_PASS_RATE, escape_control_characters, held_out_score
from exgrpo.jobs.actions import branching, run_actions
from exgrpo.jobs.actions.progress import describe_stop
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.run_actions import read_job_spec
from exgrpo.jobs.cli.following import exit_as, follow
from exgrpo.jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
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
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.lookup import find_run_id, similar_root
from exgrpo.jobs.runs.report import interval_words, summarize_run
from exgrpo.jobs.runs.state import read_state, read_supervisor
from exgrpo.jobs.specs.any_job import JobSpec
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import TrainSpec, dump_spec
from exgrpo_core.bounded_json import open_plain
from exgrpo_core.recording.run_status import BROKEN, RunStatus

if TYPE_CHECKING:
    from exgrpo.db.rows.runs import RunRow

FOLLOW_SECONDS = 0.3
_CURVE = "pass_at_1_curve"
"""The field of a run that is not printed."""
_NARROW = 100
_NARROW_WIDTHS = {"State": 9, "Method": 10, BATCH_PASS_RATE: 6, held_out_score(): 8}
"""Widths at which columns break between words, in terminals narrower than `_NARROW`; the name takes the rest."""


def runs(
    words: Annotated[list[str] | None, typer.Argument(metavar="[SEARCH]...", help=f"A search: {UNDERSTOOD}.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    includes_archived: Annotated[bool, typer.Option("--all", help="Include archived runs.")] = False,
    as_json: AsJson = False,
) -> None:
    """List runs, newest first. Add search words to find some of them."""
    search = " ".join(words or ())
    if hint := similar_root(runs_root):
        raise CommandError(hint)
    with open_fresh_index(runs_root, database_url) as database:
        rows = list_runs(database, RunFilter(search, is_archived=None), limit=None)
    listed = [row for row in rows if includes_archived or not row.is_archived]
    if as_json:
        print_json([{name: value for name, value in asdict(row).items() if name != _CURVE} for row in listed])
    elif listed:
        _print_table(listed)
    elif rows:
        print_result(f"All {len(rows)} runs{' found' if search else ''} in {runs_root} are archived; --all lists them.")
    elif search:
        print_result(f"No run in {runs_root} matches {search!r}.")
    else:
        print_result(f"No runs in {runs_root} yet; `exgrpo train` starts one.")


def show(
    run: RunName, runs_root: RunsRoot = DEFAULT_RUNS_ROOT, database_url: DatabaseUrl = None, as_json: AsJson = False
) -> None:
    """Show one run. Prints state, newest metrics, evaluations, attempts and checkpoints."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        summary = summarize_run(database, run_id)
    if summary["run"]["status"] == RunStatus.STOPPING:
        summary["stop"] = describe_stop(runs_root, run_id)
    if as_json:
        print_json(summary)
    else:
        _print_summary(summary)


def logs(
    run: RunName,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow the log until the run ends.")] = False,
) -> None:
    """Print the log of a run."""
    folder = RunDirectory.open(runs_root, find_run_id(runs_root, run))
    offset = _print_from(folder.log_path, 0)
    while follow:
        is_over = read_state(folder).is_ended
        offset = _print_from(folder.log_path, offset)
        if is_over:
            return
        time.sleep(FOLLOW_SECONDS)


def stop(run: RunName, runs_root: RunsRoot = DEFAULT_RUNS_ROOT) -> None:
    """Stop a run. It ends at its next step, with a checkpoint."""
    run_id = find_run_id(runs_root, run)
    is_queued = read_state(RunDirectory.open(runs_root, run_id)).status == RunStatus.QUEUED
    run_actions.stop(runs_root, run_id)
    print_result(f"{run_id} was queued and does not start." if is_queued else f"{run_id} stops at its next step.")


def resume(
    run: RunName,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    follows: Annotated[
        bool, typer.Option("--follow", help="Follow the run until it ends, as `exgrpo train` does.")
    ] = False,
    settings: Annotated[list[str] | None, typer.Option("--set", hidden=True)] = None,
) -> None:
    """Continue a run from its newest checkpoint."""
    run_id = find_run_id(runs_root, run)
    if settings:
        raise CommandError(
            f"--set: a run keeps its settings; `exgrpo branch {run_id} --step STEP --set KEY=VALUE` continues from a "
            f"checkpoint with others, `exgrpo clone {run_id} --submit --set KEY=VALUE` starts again."
        )
    if not follows or read_state(RunDirectory.open(runs_root, run_id)).status in BROKEN:
        sentence = run_actions.resume(runs_root, run_id)
        if sentence:
            typer.echo(sentence, err=True)
    if follows:
        exit_as(follow(runs_root, database_url, run_id))
        return
    _print_queued(runs_root, run_id)


def clone(
    run: RunName,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    settings: Settings = None,
    submits: Annotated[
        bool, typer.Option("--submit", help="Start the new run instead of printing its specification.")
    ] = False,
) -> None:
    """Copy a run's settings. Prints them with changed fields, or starts a new run."""
    parent_run_id = find_run_id(runs_root, run)
    spec = read_job_spec(runs_root, parent_run_id)
    if submits:
        spec = spec.model_copy(update={"name": run_actions.name_of_copy(runs_root, spec.name)})
    spec = apply_settings(spec, settings or [])
    if submits:
        _print_changes(runs_root, parent_run_id, spec)
        _print_queued(runs_root, queue_job(runs_root, spec, parent_run_id=parent_run_id))
    else:
        typer.echo(dump_spec(spec), nl=False)


def branch(
    run: RunName,
    step: Annotated[int, typer.Option("--step", help="Step of the checkpoint to start from.")],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    settings: Settings = None,
) -> None:
    """Continue from a checkpoint as a new run. Settings can change."""
    run_id = find_run_id(runs_root, run)
    spec = apply_settings(branching.branch_spec(runs_root, run_id, step), settings or [])
    _print_changes(runs_root, run_id, spec)
    _print_queued(runs_root, branching.branch(runs_root, run_id, step, spec))


def _print_changes(runs_root: Path, parent_run_id: str, spec: JobSpec) -> None:
    if isinstance(spec, TrainSpec):
        for change in branching.branch_changes(runs_root, parent_run_id, spec):
            print_status(f"{change.path}: {json.dumps(change.before)} -> {json.dumps(change.after)}")


def _print_queued(runs_root: Path, run_id: str) -> None:
    print_result(run_id)
    if read_supervisor(runs_root) is None:
        typer.echo("Queued, but no supervisor is running; start one with `exgrpo up`.", err=True)


def _print_from(path: Path, offset: int) -> int:
    try:
        with open_plain(path) as file:
            file.seek(offset)
            content = file.read()
    except FileNotFoundError:
        return offset
    lines = content.decode("utf-8", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    typer.echo(escape_control_characters(lines), nl=False)
    return offset + len(content)


def _print_table(rows: "list[RunRow]") -> None:
    console = table_console()
    widths = _NARROW_WIDTHS if console.width < _NARROW else {}
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("Run", "Name", "State", "Method", "Step", BATCH_PASS_RATE, held_out_score()):
        is_broken = heading == "Name" or heading in widths
        table.add_column(heading, no_wrap=not is_broken, width=widths.get(heading), overflow="fold")
    for row in rows:
        table.add_row(
            row.run_id,
            escape(escape_control_characters(row.name)),
            _state(row),
            row.method,
            _step(row.step, row.num_steps, "/"),
            _rate(row.last_pass_at_1),
            _rate(row.last_avg_at_n),
        )
    console.print(table)
    for row in rows:
        for fault in (*row.faults, *filter(None, [row.not_shown])):
            print_result(f"{row.run_id}: {escape_control_characters(fault)}")


def _state(row: "RunRow") -> str:
    marks = [mark for mark, holds in (("archived", row.is_archived), ("damaged", row.faults)) if holds]
    return ", ".join([row.status, *marks])


def _step(step: int, num_steps: int, of: str) -> str:
    """Return a run's step; how many there will be is unknown of what other programs record."""
    return f"{step}{of}{num_steps}" if num_steps else str(step or "")


def _print_summary(summary: dict[str, Any]) -> None:
    row = summary["run"]
    reason = f": {row['status_reason']}" if row["status_reason"] else ""
    archived = ", archived" if row["is_archived"] else ""
    print_result(f"{row['run_id']} {row['name']!r} {row['status']}{archived}{reason}")
    for sentence in row["left_out"]:
        print_result(escape_control_characters(sentence))
    for fault in row["faults"]:
        print_result(f"damaged: {escape_control_characters(fault)}")
    if row["not_shown"]:
        print_result(escape_control_characters(row["not_shown"]))
    for notice in summary["notices"]:
        print_result(notice)
    if summary.get("stop"):
        print_result(summary["stop"])
    given = ", ".join(filter(None, [row["model"], row["dataset"]]))
    step = _step(row["step"], row["num_steps"], " of ")
    print_result(" on ".join(filter(None, [row["method"], given])) + (f"; step {step}" if step else ""))
    for evaluation in summary["evaluations"]:
        question_set = evaluation["question_set"].replace("_", "-").capitalize()
        print_result(
            f"step {evaluation['step']:>5} {question_set:<8} Avg@{evaluation['samples_per_question']} "
            f"{evaluation['avg_at_n']:.3f}{interval_words(evaluation, 3)}"
        )
    for score in summary["benchmarks"]:
        print_result(f"{score['title']:<14} {score['scheme']:<9} {score['score']:.4f}{interval_words(score, 4)}")
    for key, value in sorted(summary["metrics"].items()):
        print_result(f"{key:<32} {plain_number(value)}")
    for attempt in summary["attempts"]:
        print_result(f"attempt {attempt['attempt']}: {attempt['status']} {attempt['status_reason']}".rstrip())
    steps = [f"{checkpoint['step']} ({checkpoint['kept_as']})" for checkpoint in summary["checkpoints"]]
    print_result(f"checkpoints at steps: {', '.join(steps) or 'none'}")


def plain_number(value: float) -> str:
    """Return a number with at least four digits that count; with a power of ten from 1e16 on, and below 1e-12."""
    if not math.isfinite(value) or abs(value) >= 1e16 or 0 < abs(value) < 1e-12:
        return str(value)
    return f"{Decimal(f'{value:.{max(4, len(str(abs(int(value)))))}g}'):f}"


def _rate(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
