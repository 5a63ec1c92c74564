"""Snowball cases: by entropy and verdict, and those that users saved."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, Select, Subquery, case, func, or_, select, union_all

from exgrpo.db.connections.session import Database
from exgrpo.db.ingest.event_rows import trajectory_key
from exgrpo.db.queries.judging import question_texts
from exgrpo.db.queries.verdicts import JudgedTrajectories, judged_trajectories
from exgrpo.db.rows.chains_of_thought import CaseResponse, CaseSetRow, SavedCase, SnowballCase
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.db.tables.correctness import is_correct_column

_KeyPair = tuple[int, int]
"""Trajectory keys of the responses of lowest and of highest entropy."""


def find_cases(
    database: Database, run_id: str, judge_run_id: str | None = None, *, limit: int = 3, only_telling: bool = False
) -> list[SnowballCase]:
    """Return the best cases of a run, at most one per question: lowest against highest entropy.

    A pair is the lowest and the highest of one step, or a valid and an invalid one of different steps.

    A valid chain of thought next to an invalid one comes first, then code in the uncertain one alone, then a wide gap
    in entropy; `only_telling` keeps the first kind only.
    """
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        query = _best_pairs(judged, only_telling=only_telling).limit(limit)
        pairs = [(low, high) for low, high in connection.execute(query)]
        responses = _responses(connection, judged, pairs)
    return _cases(database, run_id, pairs, responses)


def list_case_sets(database: Database) -> list[CaseSetRow]:
    """Return every set of saved cases, by name."""
    table = models.saved_cases
    query = (
        select(table.c.case_set, func.count(), func.count(table.c.run_key.distinct()))
        .group_by(table.c.case_set)
        .order_by(table.c.case_set)
    )
    return [CaseSetRow(*row) for row in database.rows(query)]


def sets_of_run(database: Database, run_id: str) -> dict[SavedCase, tuple[str, ...]]:
    """Return the sets that each saved case of a run is in."""
    table = models.saved_cases
    query = (
        select(table.c.attempt, table.c.low_trajectory_id, table.c.high_trajectory_id, table.c.case_set)
        .join(models.runs)
        .where(models.runs.c.run_id == run_id)
        .order_by(table.c.case_set)
    )
    sets: dict[SavedCase, tuple[str, ...]] = {}
    with database.read() as connection:
        for attempt, low, high, name in connection.execute(query):
            saved = SavedCase(run_id, attempt, low, high)
            sets[saved] = (*sets.get(saved, ()), name)
    return sets


def saved_cases(database: Database, case_set: str) -> list[SnowballCase]:
    """Return the cases of a set in the order in which they were saved, without those of repeated steps.

    Verdicts are users', else the oracle's, else those of the newest judge of the run.
    """
    table, runs = models.saved_cases, models.runs
    query = (
        select(runs.c.run_id, runs.c.run_key, table.c.attempt, table.c.low_trajectory_id, table.c.high_trajectory_id)
        .join_from(table, runs)
        .where(table.c.case_set == case_set)
        .order_by(table.c.at, table.c.low_trajectory_id)
    )
    rows = database.rows(query)
    by_run: dict[str, list[_KeyPair]] = {}
    order = [SavedCase(run_id, attempt, low, high) for run_id, _, attempt, low, high in rows]
    for run_id, run_key, attempt, low, high in rows:
        pair = (trajectory_key(run_key, attempt, low), trajectory_key(run_key, attempt, high))
        by_run.setdefault(run_id, []).append(pair)
    cases = {item.saved: item for run_id, pairs in by_run.items() for item in _load(database, run_id, pairs)}
    return [cases[saved] for saved in order if saved in cases]


def _load(database: Database, run_id: str, pairs: Sequence[_KeyPair]) -> list[SnowballCase]:
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, _judge_without_oracle(connection, run_id, pairs))
        responses = _responses(connection, judged, pairs)
    return _cases(database, run_id, [pair for pair in pairs if {*pair} <= responses.keys()], responses)


def _judge_without_oracle(connection: Connection, run_id: str, pairs: Sequence[_KeyPair]) -> str | None:
    trajectories, votes, runs = models.trajectories, models.judge_votes, models.runs
    keys = [key for pair in pairs for key in pair]
    has_oracle = select(trajectories.c.trajectory_key).where(
        one_of(trajectories.c.trajectory_key, keys), trajectories.c.is_valid.is_not(None)
    )
    if connection.execute(has_oracle.limit(1)).first() is not None:
        return None
    newest = select(runs.c.run_id).join(votes).where(votes.c.source == run_id).order_by(runs.c.created_at.desc())
    return connection.scalar(newest.limit(1))


def _best_pairs(judged: JudgedTrajectories, *, only_telling: bool) -> Select[Any]:
    pairs = union_all(_pairs_of_steps(judged), _pairs_of_questions(judged)).subquery()
    is_telling = (pairs.c.low_is_valid == 1) & (pairs.c.high_is_invalid == 1)
    order = (
        _as_integer(is_telling).desc(),
        _as_integer((pairs.c.high_has_code == 1) & (pairs.c.low_has_code == 0)).desc(),
        (pairs.c.high_entropy - pairs.c.low_entropy).desc(),
        pairs.c.low_key,
    )
    rank_in_question = func.row_number().over(partition_by=pairs.c.question_index, order_by=order)
    rank = func.row_number().over(order_by=order)
    ranked = select(pairs.c.low_key, pairs.c.high_key, rank_in_question.label("rank_in_question"), rank.label("rank"))
    if only_telling:
        ranked = ranked.where(is_telling)
    best = ranked.subquery()
    keys = select(best.c.low_key, best.c.high_key)
    return keys.where(best.c.rank_in_question == 1).order_by(best.c.rank)


def _as_integer(condition: ColumnElement[bool]) -> ColumnElement[int]:
    return case((condition, 1), else_=0)


def _pairs_of_steps(judged: JudgedTrajectories) -> Select[Any]:
    """Return one row per group with at least two successes: the one of lowest and the one of highest entropy."""
    trajectories = models.trajectories
    members = _successes(
        judged, (trajectories.c.step, trajectories.c.attempt, trajectories.c.group_position)
    ).subquery()
    group = (members.c.step, members.c.attempt, members.c.group_position)
    return _pairs(members, members.c.from_low == 1, members.c.from_high == 1, group)


def _pairs_of_questions(judged: JudgedTrajectories) -> Select[Any]:
    """Return one row per question of an attempt: lowest-entropy valid and highest-entropy invalid success."""
    trajectories = models.trajectories
    judged_as = case((judged.verdict.is_(True), 1), (judged.verdict.is_(False), 0))
    members = _successes(judged, (trajectories.c.attempt, trajectories.c.question_index, judged_as)).subquery()
    low = members.c.is_valid.is_(True) & (members.c.from_low == 1)
    high = members.c.is_valid.is_(False) & (members.c.from_high == 1)
    pairs = _pairs(members, low, high, (members.c.attempt,)).subquery()
    return select(pairs).where(pairs.c.low_entropy < pairs.c.high_entropy)


def _successes(judged: JudgedTrajectories, group: tuple[ColumnElement[Any], ...]) -> Select[Any]:
    """Return the correct answers of a run, each with its place in the group from lowest and from highest entropy."""
    trajectories = models.trajectories
    key, entropy = trajectories.c.trajectory_key, trajectories.c.mean_entropy
    return (
        select(
            trajectories.c.step,
            trajectories.c.attempt,
            trajectories.c.group_position,
            trajectories.c.question_index,
            key,
            entropy,
            trajectories.c.has_code,
            judged.verdict.label("is_valid"),
            func.row_number().over(partition_by=group, order_by=(entropy, key)).label("from_low"),
            func.row_number().over(partition_by=group, order_by=(entropy.desc(), key.desc())).label("from_high"),
        )
        .select_from(judged.source)
        .where(*judged.conditions, is_correct_column(), entropy.is_not(None))
    )


def _pairs(
    members: Subquery, low: ColumnElement[bool], high: ColumnElement[bool], group: tuple[ColumnElement[Any], ...]
) -> Select[Any]:
    """Return one row per group that has both ends: keys, entropies, verdicts and code of the two."""

    def of(end: ColumnElement[bool], column: ColumnElement[Any]) -> ColumnElement[Any]:
        return func.max(case((end, column)))

    return (
        select(
            members.c.question_index,
            of(low, members.c.trajectory_key).label("low_key"),
            of(high, members.c.trajectory_key).label("high_key"),
            of(low, members.c.mean_entropy).label("low_entropy"),
            of(high, members.c.mean_entropy).label("high_entropy"),
            of(low, _as_integer(members.c.is_valid.is_(True))).label("low_is_valid"),
            of(high, _as_integer(members.c.is_valid.is_(False))).label("high_is_invalid"),
            of(low, _as_integer(members.c.has_code.is_(True))).label("low_has_code"),
            of(high, _as_integer(members.c.has_code.is_(True))).label("high_has_code"),
        )
        .where(or_(low, high))
        .group_by(*group, members.c.question_index)
        .having(func.count() == 2)
    )


def _responses(
    connection: Connection, judged: JudgedTrajectories, pairs: Iterable[_KeyPair]
) -> dict[int, tuple[int, int, CaseResponse]]:
    """Return (attempt, question, response) by trajectory key."""
    trajectories, texts = models.trajectories, models.trajectory_texts
    query = (
        select(
            trajectories.c.trajectory_key,
            trajectories.c.attempt,
            trajectories.c.question_index,
            trajectories.c.trajectory_id,
            trajectories.c.step,
            trajectories.c.reward,
            trajectories.c.mean_entropy,
            judged.verdict,
            trajectories.c.has_code,
            texts.c.text,
        )
        .select_from(judged.source.join(texts, texts.c.trajectory_key == trajectories.c.trajectory_key))
        .where(one_of(trajectories.c.trajectory_key, [key for pair in pairs for key in pair]))
    )
    return {row.trajectory_key: (row.attempt, row.question_index, _response(row)) for row in connection.execute(query)}


def _response(row: Row[Any]) -> CaseResponse:
    """Return a response, with None as the entropy of one that has none."""
    response = CaseResponse(*tuple(row)[3:])
    return replace(response, entropy=None) if math.isnan(response.entropy or 0.0) else response


def _cases(
    database: Database, run_id: str, pairs: Sequence[_KeyPair], responses: dict[int, tuple[int, int, CaseResponse]]
) -> list[SnowballCase]:
    questions = question_texts(database, run_id, sorted({responses[low][1] for low, _ in pairs}))
    cases = []
    for low, high in pairs:
        attempt, question_index, response = responses[low]
        question, truth = questions.get(question_index, ("", ""))
        step, other = response.step, responses[high][2]
        cases.append(SnowballCase(run_id, attempt, step, question_index, question, truth, response, other))
    return cases
