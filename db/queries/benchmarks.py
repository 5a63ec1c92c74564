"""Scores of benchmarks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Connection, RowMapping, Select, select

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.run_values import method_expression
from exgrpo.db.rows.scores import BenchmarkScoreRow, ComparisonRow, ItemRow, ScoredRuns
from exgrpo.db.rows.spec_fields import is_unreadable
from exgrpo.db.statistics import holm, paired_difference
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.db.tables.shared_reads import question_rates

_STARTED_FROM = re.compile(r"^([^/@]+)@(?:[0-9]+|last)$")
"""The model of a run that started from a checkpoint: the id of that run, and the step."""


def list_scores(
    database: Database,
    *,
    run_id: str | None = None,
    source_run_id: str | None = None,
    scheme: str | None = None,
    limit: int | None = None,
) -> list[BenchmarkScoreRow]:
    """Return scores, newest evaluation first and benchmarks in the order in which they were finished.

    They are those of the evaluation `run_id`, of checkpoints of the training run `source_run_id`, and by the `scheme`
    paper or training, where these are given. Archived evaluations are left out but by their id.
    """
    runs, table = models.runs, models.benchmark_scores
    query = _score_query()
    query = query.where(runs.c.run_id == run_id) if run_id is not None else query.where(~runs.c.is_archived)
    if source_run_id is not None:
        query = query.where(table.c.source_run_id == source_run_id)
    if scheme is not None:
        query = query.where(table.c.scheme == scheme)
    query = query.order_by(runs.c.created_at.desc(), runs.c.run_id, table.c.at, table.c.scheme.desc()).limit(limit)
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
        specs = {row["source_run_id"]: row["source_spec"] for row in rows if row["source_spec"] is not None}
        backbones = {run_id: _first_backbone(connection, spec) for run_id, spec in specs.items()}
    return [_score_row(row, backbones.get(row["source_run_id"])) for row in rows]


def _score_query() -> Select[Any]:
    """Return the query for scores without their questions, of which there may be many thousand."""
    runs, table, source = models.runs, models.benchmark_scores, models.runs.alias("source")
    method = method_expression(source.c.spec).label("method")
    of_source = [source.c.name.label("source_name"), source.c.spec.label("source_spec"), method]
    columns = [table.c[name] for name in BenchmarkScoreRow.__dataclass_fields__ if name in table.c]
    of_run = [runs.c.run_id, runs.c.name.label("run_name"), runs.c.spec]
    return select(*of_run, *columns, *of_source).join(runs).outerjoin(source, source.c.run_id == table.c.source_run_id)


def _score_row(row: RowMapping, backbone: str | None) -> BenchmarkScoreRow:
    fields = {name: row[name] for name in BenchmarkScoreRow.__dataclass_fields__ if name in row}
    fields["chosen_as"] = row["spec"].get("model", {}).get("chosen_as") or ""
    fields |= {"method": "", "backbone": row["model"]} if backbone is None else {"backbone": backbone}
    return BenchmarkScoreRow(**fields)


def _first_backbone(connection: Connection, spec: Mapping[str, Any]) -> str:
    """Return where the first model came from: a hub name or a folder.

    Where a run on the way is not in the database, its checkpoint's folder is the answer.
    """
    source, seen = _model_source(spec), set()
    while (match := _STARTED_FROM.search(source)) is not None and match[1] not in seen:
        seen.add(match[1])
        parent = connection.scalar(select(models.runs.c.spec).where(models.runs.c.run_id == match[1]))
        if parent is None:
            break
        source = _model_source(parent)
    return source


def _model_source(spec: Mapping[str, Any]) -> str:
    return str(spec.get("model", {}).get("source", ""))


@dataclass(frozen=True, slots=True)
class _Pair:
    """One benchmark of two models: correctness rates of common questions, and the parts of the keys that differ.

    Rates are (seeds, questions); `seeds` are the trained runs, or models, of both. Where `is_paired`, row s of both
    began with the same seed.
    """

    benchmark: str
    question_ids: list[str]
    first: NDArray[np.float64]
    second: NDArray[np.float64]
    seeds: tuple[tuple[str, ...], tuple[str, ...]]
    is_paired: bool
    differing: tuple[str, ...]


def compare_scores(
    database: Database,
    first: ScoredRuns,
    second: ScoredRuns,
    scheme: str,
    averages: tuple[tuple[str, tuple[str, ...]], ...] = (),
) -> list[ComparisonRow]:
    """Return one row per benchmark that both models have, then one per average whose benchmarks both have.

    An average weighs its benchmarks equally, however many questions each has; each seed must have all of them.
    """
    pairs = {pair.benchmark: pair for pair in _pairs(database, first, second, scheme)}
    whole = [
        (name, parts)
        for name, parts in averages
        if pairs.keys() >= {*parts} and len({pairs[part].seeds for part in parts}) == 1
    ]
    rows = [
        *(_compare(pair.benchmark, [pair]) for pair in pairs.values()),
        *(_compare(name, [pairs[part] for part in parts]) for name, parts in whole),
    ]
    corrected = holm([row.p_value for row in rows])
    return [replace(row, p_value=p_value) for row, p_value in zip(rows, corrected, strict=True)]


def list_items(database: Database, first: ScoredRuns, second: ScoredRuns, scheme: str, benchmark: str) -> list[ItemRow]:
    """Return the questions of a benchmark on which two models differ: most won first, most lost last."""
    wanted = [tuple(run for run in runs if run[0] == benchmark) for runs in (first, second)]
    items = [
        ItemRow(pair.benchmark, *values)
        for pair in _pairs(database, wanted[0], wanted[1], scheme)
        for values in zip(pair.question_ids, _means(pair.first), _means(pair.second), strict=True)
    ]
    return sorted((item for item in items if item.difference), key=lambda item: -item.difference)


def differing_parts(first: Mapping[str, Any], second: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the names of the parts in which two comparability keys differ."""
    return tuple(sorted(name for name in {*first, *second} if first.get(name) != second.get(name)))


def _compare(name: str, pairs: list[_Pair]) -> ComparisonRow:
    gap = paired_difference([(pair.first, pair.second) for pair in pairs], is_paired=pairs[0].is_paired)
    gaps = [
        after - before for pair in pairs for before, after in zip(_means(pair.first), _means(pair.second), strict=True)
    ]
    return ComparisonRow(
        benchmark=name,
        num_questions=len(gaps),
        first=float(np.mean([pair.first.mean() for pair in pairs])),
        second=float(np.mean([pair.second.mean() for pair in pairs])),
        difference=gap.value,
        low=gap.low,
        high=gap.high,
        p_value=gap.p_value,
        num_won=sum(value > 0 for value in gaps),
        num_lost=sum(value < 0 for value in gaps),
        num_seeds=(len(pairs[0].first), len(pairs[0].second)),
        is_paired=pairs[0].is_paired,
        differing=tuple(sorted({part for pair in pairs for part in pair.differing})),
    )


def _means(rates: NDArray[np.float64]) -> list[float]:
    means: list[float] = rates.mean(axis=0).tolist()
    return means


def _pairs(database: Database, first: ScoredRuns, second: ScoredRuns, scheme: str) -> list[_Pair]:
    rows = _scored(database, {*first, *second}, scheme)
    pairs = []
    for benchmark in dict(first):
        sides = [
            [rows[run_id, name] for name, run_id in runs if name == benchmark and (run_id, name) in rows]
            for runs in (first, second)
        ]
        if all(sides):
            pairs.append(_pair(benchmark, *sides))
    return [pair for pair in pairs if pair.question_ids]


def _pair(name: str, first: Sequence[RowMapping], second: Sequence[RowMapping]) -> _Pair:
    is_paired = _have_same_seeds(first, second)
    sides = [sorted(side, key=_training_seed if is_paired else _seed) for side in (first, second)]
    rates = [[question_rates(row) for row in side] for side in sides]
    every = [entry for side in rates for entry in side]
    common = [question_id for question_id in every[0] if all(question_id in entry for entry in every)]
    left, right = (np.array([[entry[item] for item in common] for entry in side]) for side in rates)
    differing = {
        part for row in (*first, *second) for part in differing_parts(first[0]["comparability"], row["comparability"])
    }
    seeds = tuple(map(_seed, sides[0])), tuple(map(_seed, sides[1]))
    return _Pair(name, common, left, right, seeds, is_paired, tuple(sorted(differing)))


def _have_same_seeds(first: Sequence[RowMapping], second: Sequence[RowMapping]) -> bool:
    sides = [[_training_seed(row) for row in side] for side in (first, second)]
    seeds = {*sides[0]}
    return len(seeds) > 1 and () not in seeds and seeds == {*sides[1]} and len(seeds) == len(sides[0]) == len(sides[1])


def _training_seed(row: RowMapping) -> tuple[int, ...]:
    """Return the seed of the scored run and that of the warm model it began with, () where they are unknown."""
    spec = row["source_spec"]
    return () if spec is None or is_unreadable(spec) else (spec["seed"], spec["model"].get("warm_seed", 0))


def _seed(row: RowMapping) -> str:
    return str(row["source_run_id"] or row["model"])


def _scored(database: Database, wanted: set[tuple[str, str]], scheme: str) -> dict[tuple[str, str], RowMapping]:
    runs, table, source = models.runs, models.benchmark_scores, models.runs.alias("source")
    names, run_ids = {name for name, _ in wanted}, {run_id for _, run_id in wanted}
    query = select(table, runs.c.run_id, source.c.spec.label("source_spec")).join(runs)
    query = query.outerjoin(source, source.c.run_id == table.c.source_run_id).where(table.c.scheme == scheme)
    query = query.where(one_of(runs.c.run_id, run_ids), table.c.benchmark.in_(names))
    with database.read() as connection:
        return {(row["run_id"], row["benchmark"]): row for row in connection.execute(query).mappings()}
