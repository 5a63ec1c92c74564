"""The attempts at every question of a run: fresh rollouts of one question in one step."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection

from db.queries.remembered_columns import columns_of_run

Integers = npt.NDArray[np.int64]


class QuestionAttempts(NamedTuple):
    """One entry an attempt, by question, then step."""

    keys: Integers
    """question * span + step."""
    span: int
    """More than the last step of any key."""
    num_rollouts: Integers
    num_correct: Integers


def question_attempts(connection: Connection, run_id: str, run_key: int, last_step: int = 0) -> QuestionAttempts:
    """Return a run's attempts; keys may also be made for steps up to `last_step`, if that is later than any attempt."""
    columns = columns_of_run(connection, run_id, run_key).columns
    span = 2 + max(int(columns["step"].max(initial=0)), last_step)
    keys, inverse = np.unique(columns["question_index"].astype(np.int64) * span + columns["step"], return_inverse=True)
    inverse = inverse.reshape(-1)
    return QuestionAttempts(
        keys,
        span,
        np.bincount(inverse, minlength=keys.size),
        np.bincount(inverse, columns["is_correct"], keys.size).astype(np.int64),
    )
