"""Scores of benchmarks, compared, and the answers on which the schemes of scoring differ."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import RowMapping, Select, select

from db import models
from db.paired_bootstrap import paired_bootstrap
from db.queries.run_lookup import UnknownRunError
from db.session import Database


@dataclass(frozen=True, slots=True)
class BenchmarkScoreRow:
    """One benchmark of one evaluation by one scheme. `run_id` is the evaluation; `source_run_id` what it scored."""

    run_id: str
    run_name: str
    benchmark: str
    title: str
    scheme: str
    score: float
    standard_error: float
    """Clustered over questions."""
    num_questions: int
    samples_per_question: int
    outcomes: dict[str, int]
    comparability_key: str
    comparability: dict[str, Any]
    model: str
    source_run_id: str | None
    source_step: int | None
    mean_tokens: float
    truncated_share: float
    at: datetime

    @property
    def metric(self) -> str:
        """Avg@n, or Pass@1 of one sample."""
        return "Pass@1" if self.samples_per_question == 1 else f"Avg@{self.samples_per_question}"


@dataclass(frozen=True, slots=True)
class DisputedAnswerRow:
    """One answer whose correctness depends on the scheme."""

    benchmark: str
    question_id: str
    sample: int
    gold: str
    answer: str
    paper: str
    training: str
    corrected: str


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """Two evaluations on one benchmark: second minus first on the questions that both have, with a 95% interval."""

    benchmark: str
    scheme: str
    num_questions: int
    first: float
    second: float
    difference: float
    low: float
    high: float
    p_value: float
    differing: tuple[str, ...]
    """What the comparability keys differ in; a comparison with any is to be shown with a warning."""


def list_scores(
    database: Database, *, run_id: str | None = None, source_run_id: str | None = None, scheme: str | None = None
) -> list[BenchmarkScoreRow]:
    """Return scores, newest evaluation first and benchmarks in the order in which they were finished.

    Args:
        database: Where to read.
        run_id: Only of this evaluation.
        source_run_id: Only of checkpoints of this training run.
        scheme: Only by this scheme: paper, training or corrected.
    """
    query = _score_query()
    table = models.benchmark_scores
    if run_id is not None:
        query = query.where(models.runs.c.run_id == run_id)
    if source_run_id is not None:
        query = query.where(table.c.source_run_id == source_run_id)
    if scheme is not None:
        query = query.where(table.c.scheme == scheme)
    query = query.order_by(models.runs.c.created_at.desc(), models.runs.c.run_id, table.c.at, table.c.scheme.desc())
    with database.read() as connection:
        return [_score_row(row) for row in connection.execute(query).mappings()]


def list_disputed(database: Database, run_id: str, benchmark: str | None = None) -> list[DisputedAnswerRow]:
    """Return the answers of one evaluation on which the schemes differ, at most as many as were recorded."""
    table, runs = models.disputed_answers, models.runs
    query = select(table).join(runs).where(runs.c.run_id == run_id).order_by(table.c.benchmark, table.c.position)
    if benchmark is not None:
        query = query.where(table.c.benchmark == benchmark)
    names = ("benchmark", "question_id", "sample", "gold", "answer", "paper", "training", "corrected")
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
    return [DisputedAnswerRow(**{name: row[name] for name in names}) for row in rows]


def compare_evaluations(
    database: Database, first_run_id: str, second_run_id: str, scheme: str = "corrected"
) -> list[ComparisonRow]:
    """Return one row a benchmark that both evaluations have, by paired bootstrap over their common questions.

    Raises:
        UnknownRunError: One of them has no scores.
    """
    first, second = (_scored(database, run_id, scheme) for run_id in (first_run_id, second_run_id))
    return [row for name in first if name in second and (row := _compare(first[name], second[name])) is not None]


def _scored(database: Database, run_id: str, scheme: str) -> dict[str, RowMapping]:
    query = _score_query().where(models.runs.c.run_id == run_id, models.benchmark_scores.c.scheme == scheme)
    with database.read() as connection:
        rows = connection.execute(query.order_by(models.benchmark_scores.c.at)).mappings().all()
    if not rows:
        raise UnknownRunError(f"{run_id}: has no scores by the scheme {scheme}.")
    return {row["benchmark"]: row for row in rows}


def _compare(first: RowMapping, second: RowMapping) -> ComparisonRow | None:
    left, right = _rates(first), _rates(second)
    common = [question_id for question_id in left if question_id in right]
    if not common:
        return None
    left_rates, right_rates = [left[own] for own in common], [right[own] for own in common]
    found = paired_bootstrap(left_rates, right_rates)
    return ComparisonRow(
        benchmark=first["benchmark"],
        scheme=first["scheme"],
        num_questions=len(common),
        first=sum(left_rates) / len(common),
        second=sum(right_rates) / len(common),
        difference=found.difference,
        low=found.low,
        high=found.high,
        p_value=found.p_value,
        differing=differing_parts(first["comparability"], second["comparability"]),
    )


def differing_parts(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of what two scores should share and do not."""
    return tuple(sorted(name for name in {*first, *second} if first.get(name) != second.get(name)))


def _rates(row: RowMapping) -> dict[str, float]:
    pairs = zip(row["question_ids"], row["num_correct"], strict=True)
    return {question_id: count / row["samples_per_question"] for question_id, count in pairs}


def _score_query() -> Select[Any]:
    runs = models.runs
    return select(models.benchmark_scores, runs.c.run_id, runs.c.name.label("run_name")).join(runs)


def _score_row(row: RowMapping) -> BenchmarkScoreRow:
    return BenchmarkScoreRow(**{name: row[name] for name in BenchmarkScoreRow.__dataclass_fields__})
