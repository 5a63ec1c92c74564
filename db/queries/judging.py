"""Judges' verdicts in plain rows."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Subquery,
    and_,
    case,
    func,
    literal,
    or_,
    select,
)

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.verdicts import JudgedTrajectories, in_order, judged_trajectories
from exgrpo.db.rows.chains_of_thought import AgreementRow
from exgrpo.db.rows.judging import JudgedOrder, JudgedRow, JudgeRow, VerdictFilter, VoteRow
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.db.tables.correctness import is_correct_column
from exgrpo.db.tables.shared_reads import require_run_key
from exgrpo_core.recording.rows import VoteOutcome

LabelledVote = tuple[str, bool, VoteOutcome]
"""Item, the human's label, the judge's outcome."""


def list_judges(database: Database, source: str | None = None) -> list[JudgeRow]:
    """Return judges' jobs, newest first: those on one training run, or all; also those that have not voted yet."""
    runs, verdicts = models.runs, _verdicts()
    balance = verdicts.c.balance
    sums = ("num_votes", "num_unjudged_votes", "num_requests", "num_tokens")
    majorities = {"num_valid": balance > 0, "num_invalid": balance < 0, "num_unjudged": balance == 0}
    counts = (
        select(
            verdicts.c.run_key,
            func.max(verdicts.c.judge).label("judge"),
            func.max(verdicts.c.prompt).label("prompt"),
            func.count().label("num_responses"),
            *(func.sum(verdicts.c[name]).label(name) for name in sums),
            *(func.count().filter(condition).label(name) for name, condition in majorities.items()),
        )
        .group_by(verdicts.c.run_key)
        .subquery()
    )
    query = (
        select(runs.c.run_id, runs.c.name, runs.c.status, runs.c.status_reason, runs.c.created_at, runs.c.spec, counts)
        .join_from(runs, counts, counts.c.run_key == runs.c.run_key, isouter=True)
        .where(runs.c.spec["kind"].as_string() == "judge")
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    )
    if source is not None:
        query = query.where(runs.c.spec["judged"]["run_id"].as_string() == source)
    with database.read() as connection:
        return [_judge_row(row) for row in connection.execute(query).mappings()]


def list_votes(database: Database, run_id: str, trajectory_id: int) -> list[VoteRow]:
    """Return every vote of every judge on one trajectory of a training run, newest judge first."""
    votes, runs = models.judge_votes, models.runs
    query = (
        select(votes, runs.c.run_id)
        .join(runs)
        .where(votes.c.source == run_id, votes.c.trajectory_id == trajectory_id)
        .order_by(runs.c.created_at.desc(), votes.c.item_id.desc(), votes.c.vote)
    )
    with database.read() as connection:
        rows = connection.execute(query).mappings().all()
    return [_vote_row(row) for row in rows]


def count_reasons(database: Database, judge_run_id: str) -> dict[str, int]:
    """Return how many of a judge's votes are unjudged, by reason."""
    votes = models.judge_votes
    query = (
        select(votes.c.reason, func.count())
        .join(models.runs)
        .where(models.runs.c.run_id == judge_run_id, votes.c.outcome == VoteOutcome.UNJUDGED)
        .group_by(votes.c.reason)
        .order_by(votes.c.reason)
    )
    return {row[0]: row[1] for row in database.rows(query)}


def count_issues(database: Database, judge_run_id: str) -> dict[str, int]:
    """Return how many of a judge's votes name each class of issue."""
    votes = models.judge_votes
    query = select(votes.c.issues).join(models.runs).where(models.runs.c.run_id == judge_run_id)
    with database.read() as connection:
        return dict(sorted(Counter(issue for issues in connection.scalars(query) for issue in issues).items()))


def labelled_votes(database: Database, judge_run_id: str) -> list[LabelledVote]:
    """Return a judge's votes on items that a human labelled, in order."""
    votes = models.judge_votes
    query = (
        select(votes.c.item_id, votes.c.label, votes.c.outcome)
        .join(models.runs)
        .where(models.runs.c.run_id == judge_run_id, votes.c.label.is_not(None))
        .order_by(votes.c.item_id, votes.c.vote)
    )
    return [(item_id, label, VoteOutcome(outcome)) for item_id, label, outcome in database.rows(query)]


def question_texts(database: Database, run_id: str, question_indices: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Return (question, truth) of training questions; the question's text if it is recorded, else its prompt."""
    questions = models.questions
    query = (
        select(questions.c.question_index, questions.c.prompt_text, questions.c.answer, questions.c.details)
        .join(models.runs)
        .where(
            models.runs.c.run_id == run_id,
            questions.c.question_set == "training",
            one_of(questions.c.question_index, question_indices),
        )
    )
    rows = database.rows(query)
    return {row.question_index: (row.details.get("question") or row.prompt_text, row.answer) for row in rows}


def _verdicts() -> Subquery:
    """Votes summed by response: `balance` is valid minus invalid ones."""
    votes = models.judge_votes
    num_valid, num_invalid, num_unjudged = (func.count().filter(votes.c.outcome == outcome) for outcome in VoteOutcome)
    keys = (votes.c.run_key, votes.c.item_id, votes.c.source, votes.c.judge, votes.c.prompt,
            votes.c.source_attempt, votes.c.trajectory_id)  # fmt: skip
    return (
        select(
            *keys,
            (num_valid - num_invalid).label("balance"),
            func.count().label("num_votes"),
            num_unjudged.label("num_unjudged_votes"),
            *(func.sum(votes.c[name]).label(name) for name in ("num_requests", "num_tokens")),
        )
        .group_by(*keys)
        .subquery()
    )


def _vote_row(row: RowMapping) -> VoteRow:
    values = {name: row[name] for name in VoteRow.__dataclass_fields__ if name != "judge_run_id"}
    return VoteRow(
        judge_run_id=row["run_id"], **values | {"outcome": VoteOutcome(row["outcome"]), "issues": tuple(row["issues"])}
    )


def calibration_votes(database: Database, judge: str, prompt: str) -> list[LabelledVote]:
    """Return the votes of the newest calibration of a judge with a prompt, in order; none if there is none."""
    votes, runs = models.judge_votes, models.runs
    newest = (
        select(runs.c.run_id)
        .join_from(votes, runs)
        .where(votes.c.judge == judge, votes.c.prompt == prompt, votes.c.label.is_not(None))
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
        .limit(1)
    )
    with database.read() as connection:
        judge_run_id = connection.scalar(newest)
    return [] if judge_run_id is None else labelled_votes(database, judge_run_id)


def list_verdicts(
    database: Database,
    run_id: str,
    judge_run_id: str | None = None,
    which: VerdictFilter = VerdictFilter.ALL,
    *,
    limit: int | None = 50,
    order: JudgedOrder | None = None,
) -> list[JudgedRow]:
    """Return correct trajectories with their verdicts: the first of all by an order, newest first without one."""
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        query = _rows(judged, run_id).where(*_conditions(connection, judged, run_id, judge_run_id, which))
        rows = connection.execute(query.order_by(*in_order(judged, order)).limit(limit))
        return [JudgedRow(*row) for row in rows]


def get_verdicts(
    database: Database, run_id: str, trajectory_id: int, judge_run_id: str | None = None
) -> JudgedRow | None:
    """Return one trajectory with its verdicts, None if the run has none of this id."""
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        is_it = models.trajectories.c.trajectory_id == trajectory_id
        row = connection.execute(_rows(judged, run_id).where(*judged.conditions, is_it)).first()
        return None if row is None else JudgedRow(*row)


def count_verdicts(database: Database, run_id: str, judge_run_id: str | None = None) -> dict[VerdictFilter, int]:
    """Return how many answer-correct trajectories each filter lists."""
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        counts = [
            func.count().filter(and_(*_conditions(connection, judged, run_id, judge_run_id, which)))
            for which in VerdictFilter
        ]
        row = connection.execute(select(*counts).select_from(judged.source).where(*judged.conditions)).one()
    return dict(zip(VerdictFilter, row, strict=True))


def agreement(database: Database, run_id: str, judge_run_id: str | None = None) -> list[AgreementRow]:
    """Return how a judge agrees with the oracle and with users; without a judge, how the oracle agrees with users."""
    with database.read() as connection:
        judged = judged_trajectories(connection, run_id, judge_run_id)
        others: list[tuple[str, Any]] = [("users", judged.user)]
        if judge_run_id is not None:
            others.insert(0, ("oracle", models.trajectories.c.is_valid))
        rows = []
        for name, other in others:
            pairs = [(True, True), (True, False), (False, True), (False, False)]
            counts = [
                func.count().filter(judged.by_judge.is_(is_valid), other.is_(is_other_valid))
                for is_valid, is_other_valid in pairs
            ]
            query = select(*counts).select_from(judged.source).where(*judged.conditions, other.is_not(None))
            rows.append(AgreementRow(name, *map(int, connection.execute(query).one())))
    return [row for row in rows if row.num_compared]


def _rows(judged: JudgedTrajectories, run_id: str) -> Select[Any]:
    """Return the query for the fields of `JudgedRow`."""
    trajectories, votes = models.trajectories, judged.votes
    num_valid, num_invalid, num_votes = (
        literal(0) if votes is None else func.coalesce(votes.c[name], 0)
        for name in ("num_valid", "num_invalid", "num_votes")
    )
    columns: dict[str, ColumnElement[Any]] = {
        **{column.name: column for column in trajectories.c},
        "run_id": literal(run_id),
        "by_judge": judged.by_judge,
        "oracle": trajectories.c.is_valid,
        "user": judged.user,
        "num_valid": num_valid,
        "num_invalid": num_invalid,
        "num_unjudged": num_votes - num_valid - num_invalid,
        "reason": literal("") if votes is None else func.coalesce(votes.c.reason, ""),
    }
    return select(*(columns[name].label(name) for name in JudgedRow.__dataclass_fields__)).select_from(judged.source)


def _conditions(
    connection: Connection, judged: JudgedTrajectories, run_id: str, judge_run_id: str | None, which: VerdictFilter
) -> list[ColumnElement[bool]]:
    conditions = [*judged.conditions, is_correct_column()]
    if which is VerdictFilter.JUDGED:
        conditions.append(judged.verdict.is_not(None))
    elif which is VerdictFilter.UNJUDGED:
        conditions.append(judged.verdict.is_(None))
    elif which is VerdictFilter.DISPUTED:
        conditions.append(or_(*_disputes(connection, judged, run_id, judge_run_id)))
    return conditions


def _disputes(
    connection: Connection, judged: JudgedTrajectories, run_id: str, judge_run_id: str | None
) -> list[ColumnElement[bool]]:
    trajectories, votes = models.trajectories, models.judge_votes
    disputes = [judged.by_judge != judged.user]
    if judged.votes is not None:
        disputes += [
            and_(judged.votes.c.num_valid > 0, judged.votes.c.num_invalid > 0),
            judged.by_judge != trajectories.c.is_valid,
        ]
    mine = None if judge_run_id is None else require_run_key(connection, judge_run_id)
    opposite = case((judged.by_judge.is_(True), VoteOutcome.INVALID), else_=VoteOutcome.VALID)
    contradicted = select(literal(1)).where(
        votes.c.source == run_id,
        votes.c.trajectory_id == trajectories.c.trajectory_id,
        votes.c.source_attempt == trajectories.c.attempt,
        votes.c.outcome == opposite,
    )
    if mine is not None:
        contradicted = contradicted.where(votes.c.run_key != mine)
    return [*disputes, and_(judged.by_judge.is_not(None), contradicted.exists())]


def _judge_row(row: RowMapping) -> JudgeRow:
    spec = row["spec"]
    server, judged = spec.get("server") or {}, spec.get("judged") or {}
    counts: dict[str, Any] = {name: int(value or 0) for name, value in row.items() if name.startswith("num_")}
    return JudgeRow(
        judge_run_id=row["run_id"],
        **{name: row[name] for name in ("name", "status", "status_reason", "created_at")},
        source=judged.get("run_id") or str(judged.get("file") or "").rpartition("/")[2],
        judge=row["judge"] or server.get("model") or spec.get("judge", ""),
        prompt=row["prompt"] or "",
        num_votes_each=spec.get("num_votes", 1),
        max_requests=server.get("max_requests"),
        max_total_tokens=server.get("max_total_tokens"),
        **counts,
    )
