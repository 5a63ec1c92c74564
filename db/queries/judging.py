"""Judges' verdicts in plain rows."""

from collections import Counter
from collections.abc import Sequence

from sqlalchemy import ColumnElement, Integer, RowMapping, Subquery, case, cast, func, select

from db.connections.session import Database
from db.rows.judging import JudgeRow, LabelledVoteRow, VoteRow
from db.tables import models


def list_judges(database: Database, source: str | None = None) -> list[JudgeRow]:
    """Return the judges that voted on a training run (by id) or a labelled file (by name), or all; newest first."""
    runs = models.runs
    verdicts = _verdicts()
    query = (
        select(
            runs.c.run_id, runs.c.name, runs.c.status, runs.c.created_at,
            verdicts.c.source, verdicts.c.judge, verdicts.c.prompt,
            func.sum(verdicts.c.num_votes), func.count(),
            func.sum(as_integer(verdicts.c.balance > 0)), func.sum(as_integer(verdicts.c.balance < 0)),
            func.sum(as_integer(verdicts.c.balance == 0)), func.sum(verdicts.c.num_tokens),
        )
        .join_from(verdicts, runs, runs.c.run_key == verdicts.c.run_key)
        .group_by(runs.c.run_key, verdicts.c.source, verdicts.c.judge, verdicts.c.prompt)
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
    )  # fmt: skip
    if source is not None:
        query = query.where(verdicts.c.source == source)
    with database.read() as connection:
        return [JudgeRow(*row[:7], *map(int, row[7:])) for row in connection.execute(query)]


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
        .where(models.runs.c.run_id == judge_run_id, votes.c.outcome == "unjudged")
        .group_by(votes.c.reason)
        .order_by(votes.c.reason)
    )
    with database.read() as connection:
        return {row[0]: row[1] for row in connection.execute(query)}


def count_issues(database: Database, judge_run_id: str) -> dict[str, int]:
    """Return how many of a judge's votes name each class of issue."""
    votes = models.judge_votes
    query = select(votes.c.issues).join(models.runs).where(models.runs.c.run_id == judge_run_id)
    with database.read() as connection:
        return dict(sorted(Counter(issue for issues in connection.scalars(query) for issue in issues).items()))


def labelled_votes(database: Database, judge_run_id: str) -> list[LabelledVoteRow]:
    """Return a judge's votes on items that a human labelled, in order."""
    votes = models.judge_votes
    query = (
        select(votes.c.item_id, votes.c.label, votes.c.outcome)
        .join(models.runs)
        .where(models.runs.c.run_id == judge_run_id, votes.c.label.is_not(None))
        .order_by(votes.c.item_id, votes.c.vote)
    )
    with database.read() as connection:
        return [LabelledVoteRow(*row) for row in connection.execute(query)]


def question_texts(database: Database, run_id: str, question_indices: Sequence[int]) -> dict[int, tuple[str, str]]:
    """Return (question, truth) of training questions; the question's text if it is recorded, else its prompt."""
    questions = models.questions
    query = (
        select(questions.c.question_index, questions.c.prompt_text, questions.c.answer, questions.c.details)
        .join(models.runs)
        .where(
            models.runs.c.run_id == run_id,
            questions.c.question_set == "training",
            questions.c.question_index.in_(question_indices),
        )
    )
    with database.read() as connection:
        rows = connection.execute(query).all()
    return {row.question_index: (row.details.get("question") or row.prompt_text, row.answer) for row in rows}


def _verdicts() -> Subquery:
    """Votes summed by response: `balance` is valid minus invalid ones."""
    votes = models.judge_votes
    valid, invalid = as_integer(votes.c.outcome == "valid"), as_integer(votes.c.outcome == "invalid")
    keys = (votes.c.run_key, votes.c.item_id, votes.c.source, votes.c.judge, votes.c.prompt,
            votes.c.source_attempt, votes.c.trajectory_id)  # fmt: skip
    return (
        select(
            *keys,
            func.sum(valid).label("num_valid"),
            func.sum(invalid).label("num_invalid"),
            (func.sum(valid) - func.sum(invalid)).label("balance"),
            func.count().label("num_votes"),
            func.sum(votes.c.num_tokens).label("num_tokens"),
        )
        .group_by(*keys)
        .subquery()
    )


def as_integer(condition: ColumnElement[bool]) -> ColumnElement[int]:
    """Return 1 where the condition holds, else 0."""
    return cast(case((condition, 1), else_=0), Integer)


def _vote_row(row: RowMapping) -> VoteRow:
    values = {name: row[name] for name in VoteRow.__dataclass_fields__ if name != "judge_run_id"}
    return VoteRow(judge_run_id=row["run_id"], **values | {"issues": tuple(row["issues"])})
