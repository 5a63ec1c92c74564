"""Two scored models on the same questions: paired differences with intervals, and the questions won and lost."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import RowMapping, select

from db.connections.session import Database
from db.queries.paired_bootstrap import PairedDifference, paired_bootstrap
from db.rows.scores import ComparisonRow, ItemRow, ScoredRuns
from db.tables import models


@dataclass(frozen=True, slots=True)
class _Pair:
    """One benchmark of two models: correctness rates of common questions, and the parts of the keys that differ."""

    benchmark: str
    question_ids: list[str]
    first: list[float]
    second: list[float]
    differing: tuple[str, ...]


def compare_scores(
    database: Database,
    first: ScoredRuns,
    second: ScoredRuns,
    scheme: str,
    averages: tuple[tuple[str, tuple[str, ...]], ...] = (),
) -> list[ComparisonRow]:
    """Return one row per benchmark that both models have, then one per average whose benchmarks both have.

    An average weighs its benchmarks equally, however many questions each has.
    """
    pairs = {pair.benchmark: pair for pair in _pairs(database, first, second, scheme)}
    whole = [(name, parts) for name, parts in averages if pairs.keys() >= {*parts}]
    return [
        *(_compare(pair.benchmark, [pair]) for pair in pairs.values()),
        *(_compare(name, [pairs[part] for part in parts]) for name, parts in whole),
    ]


def list_items(database: Database, first: ScoredRuns, second: ScoredRuns, scheme: str, benchmark: str) -> list[ItemRow]:
    """Return the questions of a benchmark on which two models differ: most won first, most lost last."""
    wanted = [tuple(run for run in runs if run[0] == benchmark) for runs in (first, second)]
    items = [
        ItemRow(pair.benchmark, *values)
        for pair in _pairs(database, wanted[0], wanted[1], scheme)
        for values in zip(pair.question_ids, pair.first, pair.second, strict=True)
    ]
    return sorted((item for item in items if item.difference), key=lambda item: -item.difference)


def differing_parts(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parts in which two comparability keys differ."""
    return tuple(sorted(name for name in {*first, *second} if first.get(name) != second.get(name)))


def _compare(name: str, pairs: list[_Pair]) -> ComparisonRow:
    gap: PairedDifference = paired_bootstrap([(pair.first, pair.second) for pair in pairs])
    gaps = [after - before for pair in pairs for before, after in zip(pair.first, pair.second, strict=True)]
    return ComparisonRow(
        benchmark=name,
        num_questions=len(gaps),
        first=sum(sum(pair.first) / len(pair.first) for pair in pairs) / len(pairs),
        second=sum(sum(pair.second) / len(pair.second) for pair in pairs) / len(pairs),
        difference=gap.difference,
        low=gap.low,
        high=gap.high,
        p_value=gap.p_value,
        num_won=sum(value > 0 for value in gaps),
        num_lost=sum(value < 0 for value in gaps),
        differing=tuple(sorted({part for pair in pairs for part in pair.differing})),
    )


def _pairs(database: Database, first: ScoredRuns, second: ScoredRuns, scheme: str) -> list[_Pair]:
    others = dict(second)
    rows = _scored(database, {*first, *second}, scheme)
    keys = [(name, (run_id, name), (others[name], name)) for name, run_id in first if name in others]
    pairs = [_pair(name, rows[left], rows[right]) for name, left, right in keys if left in rows and right in rows]
    return [pair for pair in pairs if pair.question_ids]


def _pair(name: str, first: RowMapping, second: RowMapping) -> _Pair:
    left, right = _rates(first), _rates(second)
    common = [question_id for question_id in left if question_id in right]
    rates = [left[item] for item in common], [right[entry] for entry in common]
    return _Pair(name, common, *rates, differing_parts(first["comparability"], second["comparability"]))


def _rates(row: RowMapping) -> dict[str, float]:
    pairs = zip(row["question_ids"], row["num_correct"], strict=True)
    return {question_id: count / row["samples_per_question"] for question_id, count in pairs}


def _scored(database: Database, wanted: set[tuple[str, str]], scheme: str) -> dict[tuple[str, str], RowMapping]:
    runs, table = models.runs, models.benchmark_scores
    names, run_ids = {name for name, _ in wanted}, {run_id for _, run_id in wanted}
    query = select(table, runs.c.run_id).join(runs).where(table.c.scheme == scheme)
    query = query.where(runs.c.run_id.in_(run_ids), table.c.benchmark.in_(names))
    with database.read() as connection:
        return {(row["run_id"], row["benchmark"]): row for row in connection.execute(query).mappings()}
