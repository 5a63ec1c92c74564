"""Which questions were retired by luck, and which are forgotten: attempts by bucket, and attempts after retirement."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, select

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.buffer import moves
from exgrpo.db.rows.replays import RetirementLine
from exgrpo.db.tables import models
from exgrpo.db.tables.correctness import is_correct_column
from exgrpo.db.tables.shared_reads import require_run_key

BUILT_IN_TASKS = frozenset({"chains", "word_problems"})
"""Their prompts are whole questions."""
_NO_BUCKET, _NEVER = -1, -2
Integers = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.float64]


class QuestionAttempts(NamedTuple):
    """One entry an attempt, by question, then step."""

    keys: Integers
    """question * span + step."""
    span: int
    """More than the last step of any key."""
    num_rollouts: Integers
    num_correct: Integers


def question_attempts(connection: Connection, run_key: int, last_step: int = 0) -> QuestionAttempts:
    """Return a run's attempts; keys may also be made for steps up to `last_step`, if that is later than any attempt."""
    table = models.trajectories
    place = (table.c.question_index, table.c.step)
    query = select(*place, func.count(), func.count().filter(is_correct_column())).where(table.c.run_key == run_key)
    rows = [tuple(row) for row in connection.execute(query.group_by(*place).order_by(*place))]
    questions, steps, num_rollouts, num_correct = np.array(rows, dtype=np.int64).reshape(-1, 4).T
    span = 2 + max(int(steps.max(initial=0)), last_step)
    return QuestionAttempts(questions * span + steps, span, num_rollouts, num_correct)


class Attempts(NamedTuple):
    """Attempts at questions, one entry each: fresh rollouts, correct ones, and the bucket before."""

    num_rollouts: Integers
    num_correct: Integers
    buckets: Integers
    """-1: in no bucket."""
    retires: npt.NDArray[np.bool_]
    retired_from: Integers
    """The bucket at an earlier retirement, -2 where there was none."""


def retirement_lines(database: Database, run_id: str, rollouts_per_question: int) -> list[RetirementLine]:
    """Return attempts and later attempts by bucket, those in no bucket first; a branch's parent does not count."""
    with database.read() as connection:
        attempts = _attempts(connection, require_run_key(connection, run_id))
    buckets = sorted({*attempts.buckets.tolist(), *attempts.retired_from.tolist()} - {_NEVER})
    return [retirement_line(attempts, bucket, rollouts_per_question) for bucket in buckets]


def retirement_line(attempts: Attempts, bucket: int, rollouts_per_question: int) -> RetirementLine:
    """Return the line of a bucket, `-1` for none."""
    is_first = (attempts.buckets == bucket) & (attempts.retired_from == _NEVER)
    is_later = attempts.retired_from == bucket
    rate = bucket / rollouts_per_question
    rollouts, correct = attempts.num_rollouts[is_later], attempts.num_correct[is_later]
    return RetirementLine(
        bucket=None if bucket == _NO_BUCKET else bucket,
        num_attempts=int(is_first.sum()),
        num_retired=int((is_first & attempts.retires).sum()),
        num_expected=float("nan") if bucket < 0 else float(np.power(rate, attempts.num_rollouts[is_first]).sum()),
        num_retests=int(is_later.sum()),
        retest_rate=float(correct.sum() / rollouts.sum()) if rollouts.size else float("nan"),
        retest_solved=float((correct == rollouts).mean()) if rollouts.size else float("nan"),
    )


def retired_questions(database: Database, run_id: str) -> list[tuple[str, str]]:
    """Return question and answer of every retired question, by index.

    Questions of built-in tasks are their prompts; of others it is the question without its template where recorded.
    """
    changes, questions = models.buffer_changes, models.questions
    with database.read() as connection:
        run_key = require_run_key(connection, run_id)
        is_retirement = (changes.c.run_key == run_key) & (changes.c.kind == "retired")
        query = (
            select(questions.c.prompt_text, questions.c.answer, questions.c.details)
            .where(questions.c.run_key == run_key, questions.c.question_set == "training")
            .where(questions.c.question_index.in_(select(changes.c.question_index).where(is_retirement)))
            .order_by(questions.c.question_index)
        )
        rows = connection.execute(query).all()
    return [(_question_text(row.prompt_text, row.details), row.answer) for row in rows]


def _question_text(prompt_text: str, details: Mapping[str, Any]) -> str:
    if details.get("data_source") in BUILT_IN_TASKS:
        return prompt_text
    return str(details.get("question") or prompt_text)


def _attempts(connection: Connection, run_key: int) -> Attempts:
    rows = sorted(connection.execute(moves(run_key)), key=lambda row: row.question_index)
    last_step = max((row.step for row in rows), default=0)
    keys, span, num_rollouts, num_correct = question_attempts(connection, run_key, last_step)
    moved = [
        (row.question_index * span + row.step, _NO_BUCKET if row.bucket_to is None else row.bucket_to)
        for row in rows
        if row.kind != "retired"
    ]
    retirements = [
        (row.question_index * span + row.step, _NO_BUCKET if row.bucket_from is None else row.bucket_from)
        for row in rows
        if row.kind == "retired"
    ]
    return Attempts(
        num_rollouts=num_rollouts,
        num_correct=num_correct,
        buckets=_value_before(keys, moved, span, _NO_BUCKET),
        retires=np.isin(keys, [key for key, _ in retirements]),
        retired_from=_value_before(keys, retirements, span, _NEVER),
    )


def _value_before(keys: Integers, changes: Sequence[tuple[int, int]], span: int, default: int) -> Integers:
    """Return for each attempt the value of its question's last change in an earlier step."""
    if not changes:
        return np.full(keys.size, default, dtype=np.int64)
    change_keys, values = np.array(changes, dtype=np.int64).T
    positions = np.searchsorted(change_keys, keys, side="left") - 1
    is_same = (positions >= 0) & (change_keys[positions] // span == keys // span)
    return np.where(is_same, values[positions], default)
