"""Commands that print a run's experience: the buffer at a step, selections, trajectories, curves."""

import difflib
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from db.queries.buffer import candidates
from db.queries.buffer_history import births, buckets_at, replay_counts, state_at
from db.queries.lineage import get_question, lineage
from db.queries.metrics import last_metrics, list_evaluations, metric_series
from db.queries.retirement import retired_questions
from db.queries.runs import get_run
from db.queries.selections import list_selections, steps_with_selections, wrong_choices
from db.queries.trajectories import get_trajectory
from db.queries.trajectory_list import list_snippets
from db.rows.display_names import LINEAGE_EVENTS
from db.rows.trajectories import TrajectoryFacets
from jobs.cli.options import (
    DEFAULT_RUNS_ROOT,
    AsJson,
    DatabaseUrl,
    Limit,
    RunName,
    RunsRoot,
    TrajectoryNumber,
    print_json,
    print_result,
    print_status,
)
from jobs.runs.journal import Journal
from jobs.runs.lookup import CommandError, find_run_id
from jobs.supervisor.open_index import open_fresh_index

if TYPE_CHECKING:
    from db.rows.trajectories import LineageRow

Step = Annotated[int | None, typer.Option(min=0, help="After this step; the newest if not given.")]
MAX_POINTS = 1000


def buffer(
    run: RunName,
    step: Step = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print the replay buffer after a step: which question is in which bucket, and which are retired."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        row = get_run(database, run_id)
        newest = row.step if row else 0
        at = newest if step is None else step
        if at > newest:
            raise CommandError(f"--step: {run_id} has {newest} steps, got {at}.")
        state, drawn = state_at(database, run_id, at), buckets_at(database, run_id, at)
        born, replays = births(database, run_id, at), replay_counts(database, run_id, at)
    if as_json:
        print_json({
            "run_id": run_id, "step": at, "buckets": state.buckets, "retired": sorted(state.retired),
            "draws": drawn, "trajectories_by_birth": born, "trajectories_by_replays": replays,
        })  # fmt: skip
        return
    print_result(f"{run_id} after step {at}: {len(state.buckets)} questions, {len(state.retired)} retired")
    for bucket, number in sorted(Counter(state.buckets.values()).items()):
        print_result(f"  bucket {bucket}: {number}")


def audit(
    run: RunName,
    step: Step = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print a step's selections for replay with all candidates, and the run's choices that contradict scores."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        steps = steps_with_selections(database, run_id)
        if not steps or (step is not None and step not in steps):
            replayed = f"steps {steps[0]} to {steps[-1]} did" if steps else "none did"
            raise CommandError(f"--step: expected a step of {run_id} that replayed; {replayed}.")
        at = steps[-1] if step is None else step
        selected, scored = list_selections(database, run_id, at), candidates(database, run_id, at)
        wrong = wrong_choices(database, run_id)
    if as_json:
        print_json({
            "run_id": run_id, "step": at, "selections": selected, "candidates": scored, "wrong_choices": wrong,
        })  # fmt: skip
        return
    print_result(f"{run_id}, step {at}: {len(selected)} questions drawn, {len(scored)} candidates")
    print_result(f"{len(steps)} steps replayed; {len(wrong)} choices contradict their scores")


def retired(
    run: RunName,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A JSON-lines file to write.", dir_okay=False)],
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Write a run's retired questions as a benchmark: `exgrpo eval RUN@STEP -b retired=FILE` tries them again."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        pairs = retired_questions(database, run_id)
    if not pairs:
        raise CommandError(f"{run_id}: no question is retired.")
    lines = [json.dumps({"problem": problem, "answer": answer}) + "\n" for problem, answer in pairs]
    try:
        file.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file}: cannot be written ({error.strerror}); name another file.") from None
    print_result(f"{len(pairs)} retired questions of {run_id} are in {file}")


def trajectories(  # noqa: PLR0913, PLR0917 - typer reads a command's options from its arguments
    run: RunName,
    words: Annotated[list[str] | None, typer.Argument(metavar="[WORD ...]", help="Words in the response.")] = None,
    question: Annotated[int | None, typer.Option(help="Of this question.")] = None,
    step: Annotated[int | None, typer.Option(help="Rolled out in this step.")] = None,
    correct: Annotated[bool | None, typer.Option("--correct/--wrong", help="By reward.")] = None,
    replayed: Annotated[bool | None, typer.Option("--replayed/--never-replayed", help="Ever replayed or not.")] = None,
    limit: Limit = 50,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List a run's trajectories, newest first."""
    facets = TrajectoryFacets(
        run_id=find_run_id(runs_root, run),
        words=" ".join(words or []),
        step_from=step,
        step_to=step,
        question_index=question,
        is_correct=correct,
        is_replayed=replayed,
    )
    with open_fresh_index(runs_root, database_url) as database:
        rows = list_snippets(database, facets, limit=limit)
    if as_json:
        print_json(rows)
        return
    if not rows:
        print_status(f"No trajectory of {facets.run_id} matches.")
    for row in rows:
        position = f"{row.trajectory_id:>8}  step {row.step:>5}  question {row.question_index:>6}"
        print_result(f"{position}  {row.verdict:<8} {row.snippet}")


def trajectory(
    run: RunName,
    number: TrajectoryNumber,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """Print one trajectory with its question and lineage: generation, bucket moves, replays, retirement."""
    run_id = find_run_id(runs_root, run)
    with open_fresh_index(runs_root, database_url) as database:
        row = get_trajectory(database, run_id, number)
        if row is None:
            raise CommandError(f"{run_id}: has no trajectory {number}.")
        question = get_question(database, run_id, row.question_index)
        life = lineage(database, run_id, number, row.question_index, row.step)
    if as_json:
        print_json({"trajectory": row, "question": question, "lineage": life})
        return
    print_result(
        f"{run_id}, trajectory {number}, step {row.step}, reward {row.reward:g}, entropy {row.mean_entropy:.4g}"
    )
    print_result(question.prompt_text if question else "")
    print_result(row.text)
    for event in life:
        print_result(f"  step {event.step:>5}  {LINEAGE_EVENTS.get(event.kind, event.kind)}{_moved(event)}")


def _moved(event: "LineageRow") -> str:
    if event.bucket_to is None:
        return ""
    return f" to bucket {event.bucket_to}" if event.kind == "moved" else f", bucket {event.bucket_to}"


def curves(
    runs: Annotated[list[str], typer.Argument(metavar="RUN ...", help="Runs whose curves to print.")],
    metric: Annotated[list[str] | None, typer.Option("-m", "--metric", help="Key of a metric; repeatable.")] = None,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
) -> None:
    """Print curves of runs as JSON: by run and metric, pairs of step and value, thinned to about a thousand."""
    run_ids = [find_run_id(runs_root, run) for run in runs]
    curves = {}
    with open_fresh_index(runs_root, database_url) as database:
        for run_id in run_ids:
            recorded = sorted(last_metrics(database, run_id))
            for key in metric or ():
                _require_metric(run_id, key, recorded)
            curves[run_id] = {
                "metrics": metric_series(database, run_id, tuple(metric or recorded), MAX_POINTS),
                "evaluations": list_evaluations(database, run_id),
            }
    print_json(curves)


def _require_metric(run_id: str, key: str, recorded: list[str]) -> None:
    if key in recorded:
        return
    nearest = difflib.get_close_matches(key, recorded, n=1, cutoff=0.0)
    hint = f"; the nearest is {nearest[0]}" if nearest else "; it has none yet"
    raise CommandError(f"--metric: {run_id} has recorded no {key!r}{hint}.")


def journal(
    limit: Limit = 50,
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    as_json: AsJson = False,
) -> None:
    """List the requests of users, newest first."""
    entries = [*Journal(runs_root).entries()][::-1][:limit]
    if as_json:
        print_json(entries)
        return
    for entry in entries:
        print_result(f"{entry.at}  {entry.kind:<20} {entry.run_id}  {entry.by}")
