"""The command that prints scores of benchmarks, those of one over k answers, and two compared by questions."""

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from db.queries.benchmarks import list_scores
from db.queries.score_comparison import compare_scores
from db.rows.score_intervals import describe_intervals, half_interval_95
from jobs.cli.options import DEFAULT_RUNS_ROOT, AsJson, DatabaseUrl, RunsRoot, print_json, print_result
from jobs.runs.lookup import CommandError, find_run_id
from jobs.specs.train import SpecError
from jobs.studies.measures import AVERAGES
from jobs.supervisor.open_index import open_fresh_index

if TYPE_CHECKING:
    from pathlib import Path

    from db.connections.session import Database
    from db.rows.scores import ScoredRuns
    from jobs.analysis.score_curves import ScoreCurve

SCHEMES = ("paper", "training")


def scores(
    evaluations: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FIRST [SECOND]]",
            help="One evaluation for its scores over k answers, two to compare them; a comma joins training seeds.",
        ),
    ] = None,
    scheme: Annotated[str, typer.Option(help="paper or training.")] = "paper",
    runs_root: RunsRoot = DEFAULT_RUNS_ROOT,
    database_url: DatabaseUrl = None,
    as_json: AsJson = False,
) -> None:
    """List scores with half of their 95% intervals, newest first; of one evaluation over k answers; or compare two."""
    if scheme not in SCHEMES:
        raise SpecError(f"--scheme: expected one of {', '.join(SCHEMES)}, got {scheme!r}.")
    with open_fresh_index(runs_root, database_url) as database:
        match evaluations or []:
            case []:
                _list(database, scheme, as_json)
            case [evaluation]:
                _print_curves(database, runs_root, evaluation, scheme, as_json)
            case [first, second]:
                _compare(database, runs_root, (first, second), scheme, as_json)
            case more:
                raise SpecError(f"FIRST SECOND: expected at most two evaluations, got {len(more)}.")


def _list(database: "Database", scheme: str, as_json: bool) -> None:
    rows = list_scores(database, scheme=scheme)
    if as_json:
        print_json([asdict(row) | {"standard_error": _finite(row.standard_error)} for row in rows])
        return
    for row in rows:
        model = f"{row.source_name}@{row.source_step}{row.choice}" if row.source_name else row.model
        score = f"{100 * row.score:5.1f} ± {100 * half_interval_95(row.standard_error):.1f}"
        print_result(f"{row.run_id}  {model}  {row.title:<14} {row.metric:<7} {score}  {row.num_questions} questions")
    if not rows:
        print_result("No scores yet; `exgrpo eval` adds some.")


def _finite(value: float) -> float | None:
    """Return None for NaN, which JSON lacks: a single question has no standard error."""
    return value if math.isfinite(value) else None


def _print_curves(database: "Database", runs_root: "Path", evaluation: str, scheme: str, as_json: bool) -> None:
    from jobs.analysis.score_curves import read_score_curves

    scored = _scored_runs(database, runs_root, evaluation, scheme)
    curves = {name: read_score_curves(runs_root / run_id, name, scheme) for name, run_id in scored}
    if as_json:
        print_json({name: [asdict(curve) for curve in of_benchmark] for name, of_benchmark in curves.items()})
        return
    for name, of_benchmark in curves.items():
        for curve in of_benchmark:
            print_result(f"{name:<16} {curve.measure:<16} {_curve_text(curve)}")


def _curve_text(curve: "ScoreCurve") -> str:
    """Return the values for k = 1, 2, 4 and so on, and for all answers."""
    num_samples = len(curve.values)
    shown = sorted({*(1 << power for power in range(num_samples.bit_length())), num_samples} - {0})
    intervals = [f" [{100 * low:.1f}, {100 * high:.1f}]" for low, high in zip(curve.low, curve.high, strict=True)]
    values = [f"{k}: {100 * curve.values[k - 1]:.1f}{intervals[k - 1] if intervals else ''}" for k in shown]
    return "  ".join(values) or "not recorded"


def _compare(database: "Database", runs_root: "Path", evaluations: tuple[str, str], scheme: str, as_json: bool) -> None:
    first, second = (
        tuple(scored for name in names.split(",") for scored in _scored_runs(database, runs_root, name, scheme))
        for names in evaluations
    )
    rows = compare_scores(database, first, second, scheme, tuple(AVERAGES.items()))
    if not rows:
        raise CommandError(f"{evaluations[0]}, {evaluations[1]}: expected a benchmark with common questions, has none.")
    if as_json:
        print_json(rows)
        return
    for row in rows:
        interval = f"{100 * row.difference:+.1f} [{100 * row.low:+.1f}, {100 * row.high:+.1f}], p {row.p_value:.3f}"
        warning = f"  NOT COMPARABLE: {', '.join(row.differing)}" if row.differing else ""
        counts = f"won {row.num_won}, lost {row.num_lost} of {row.num_questions} questions"
        print_result(
            f"{row.benchmark:<16} {100 * row.first:5.1f} {100 * row.second:5.1f}  {interval}  {counts}{warning}"
        )
    print_result(f"Second minus first, in points; {describe_intervals(rows)}.")


def _scored_runs(database: "Database", runs_root: "Path", name: str, scheme: str) -> "ScoredRuns":
    rows = list_scores(database, run_id=find_run_id(runs_root, name), scheme=scheme)
    if not rows:
        raise CommandError(f"{name}: expected an evaluation with scores, has none; `exgrpo eval` adds some.")
    return tuple((row.benchmark, row.run_id) for row in rows)
