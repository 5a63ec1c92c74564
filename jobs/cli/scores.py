"""The command that prints scores of benchmarks, and compares two scored models question by question."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from db.queries.benchmarks import list_scores
from db.queries.score_comparison import compare_scores
from jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, DatabaseUrl, RunsRoot, print_json, print_result
from jobs.runs.lookup import CommandError, find_run_id
from jobs.specs.train import SpecError
from jobs.studies.measures import AVERAGES
from jobs.supervisor.open_index import open_fresh_index

if TYPE_CHECKING:
    from pathlib import Path

    from db.connections.session import Database
    from db.rows.scores import ScoredRuns

SCHEMES = ("paper", "training", "corrected")


def scores(
    evaluations: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FIRST SECOND]", help="Two evaluations to compare, second minus first."),
    ] = None,
    scheme: Annotated[str, typer.Option(help="paper, training or corrected.")] = "paper",
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List scores of benchmarks, newest first, or compare two evaluations on their common questions."""
    if scheme not in SCHEMES:
        raise SpecError(f"--scheme: expected one of {', '.join(SCHEMES)}, got {scheme!r}.")
    if len(evaluations or []) not in {0, 2}:
        raise SpecError("FIRST SECOND: expected two evaluations to compare, or none to list all scores.")
    with open_fresh_index(runs_root, database_url) as database:
        if evaluations:
            _compare(database, runs_root, (evaluations[0], evaluations[1]), scheme, as_json)
        else:
            _list(database, scheme, as_json)


def _list(database: "Database", scheme: str, as_json: bool) -> None:
    rows = list_scores(database, scheme=scheme)
    if as_json:
        print_json([asdict(row) | {"standard_error": _finite(row.standard_error)} for row in rows])
        return
    for row in rows:
        model = f"{row.source_name}@{row.source_step}" if row.source_name else row.model
        score = f"{100 * row.score:5.1f} ± {100 * row.standard_error:.1f}"
        print_result(f"{row.run_id}  {model}  {row.title:<14} {row.metric:<7} {score}  {row.num_questions} questions")
    if not rows:
        print_result("No scores yet; `exgrpo eval` adds some.")


def _finite(value: float) -> float | None:
    """Return None for NaN, which JSON lacks: a single question has no standard error."""
    return value if math.isfinite(value) else None


def _compare(database: "Database", runs_root: "Path", evaluations: tuple[str, str], scheme: str, as_json: bool) -> None:
    first, second = (_scored_runs(database, runs_root, evaluation, scheme) for evaluation in evaluations)
    rows = compare_scores(database, first, second, scheme, tuple(AVERAGES.items()))
    if not rows:
        raise CommandError(f"{evaluations[0]}, {evaluations[1]}: expected a benchmark with common questions, has none.")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        interval = f"{100 * row.difference:+.1f} [{100 * row.low:+.1f}, {100 * row.high:+.1f}]"
        warning = f"  NOT COMPARABLE: {', '.join(row.differing)}" if row.differing else ""
        counts = f"won {row.num_won}, lost {row.num_lost} of {row.num_questions} questions"
        print_result(
            f"{row.benchmark:<16} {100 * row.first:5.1f} {100 * row.second:5.1f}  {interval}  {counts}{warning}"
        )


def _scored_runs(database: "Database", runs_root: "Path", name: str, scheme: str) -> "ScoredRuns":
    rows = list_scores(database, run_id=find_run_id(runs_root, name), scheme=scheme)
    if not rows:
        raise CommandError(f"{name}: expected an evaluation with scores, has none; `exgrpo eval` adds some.")
    return tuple((row.benchmark, row.run_id) for row in rows)
