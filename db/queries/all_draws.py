"""Every draw of a run as columns: what each step drew from its buckets, and the candidates of each drawn question."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from sqlalchemy import Select, select

from db.connections.session import Database
from db.tables import models
from db.tables.shared_reads import require_run_key


@dataclass(frozen=True, slots=True)
class AllDraws:
    """Structured arrays in the order of steps; candidates of a question stand together, oldest first.

    `buckets` has step, bucket, num_questions before the step, probability and num_drawn; `questions` step,
    question_index and bucket of each that was drawn; `candidates` step, question_index, num_tokens, entropy, nll (nats)
    and is_chosen.
    """

    buckets: np.ndarray
    questions: np.ndarray
    candidates: np.ndarray


_NUMBERS: dict[str, Any] = {
    "entropy": np.float32, "nll": np.float32, "probability": np.float64, "is_chosen": np.bool_,
}  # fmt: skip


def all_draws(database: Database, run_id: str) -> AllDraws:
    """Return every draw of a run, none of steps that a resume did again."""
    with database.read() as connection:
        run_key = require_run_key(connection, run_id)

        def read(table: Any, names: tuple[str, ...], order: tuple[str, ...]) -> np.ndarray:  # noqa: ANN401 - a table
            query: Select[Any] = (
                select(*(table.c[name] for name in names))
                .where(table.c.run_key == run_key)
                .order_by(*(table.c[name] for name in order))
            )
            kinds = np.dtype([(name, _NUMBERS.get(name, np.int64)) for name in names])
            return np.fromiter(map(tuple, connection.execute(query)), dtype=kinds)

        key = ("step", "attempt", "question_index")
        return AllDraws(
            read(
                models.bucket_counts,
                ("step", "bucket", "num_questions", "probability", "num_drawn"),
                ("step", "bucket"),
            ),
            read(models.selections, ("step", "question_index", "bucket"), key),
            read(
                models.candidates,
                ("step", "question_index", "num_tokens", "entropy", "nll", "is_chosen"),
                (*key, "position"),
            ),
        )
