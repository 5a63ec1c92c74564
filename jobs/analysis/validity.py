"""Entropy and perplexity against validity: the paper's figures in numbers.

All statistics are over answer-correct trajectories, as the paper's judge saw only those.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from db.rows.chains_of_thought import ALL, Difficulty
from db.statistics.differences import area_under_curve


class ScoredTrajectory(Protocol):
    """An answer-correct trajectory's scores and verdict."""

    @property
    def difficulty(self) -> Difficulty | None:
        """The paper's group of its question in its step."""
        ...

    @property
    def is_valid(self) -> bool | None:
        """The verdict on its chain of thought."""
        ...

    @property
    def mean_entropy(self) -> float:
        """Nats a token."""
        ...

    @property
    def perplexity(self) -> float:
        """Exp of the mean negative log-likelihood."""
        ...


@dataclass(frozen=True, slots=True)
class ValidityLine:
    """Valid against invalid trajectories of one group.

    An `auc` is the chance that an invalid trajectory scores higher than a valid one: 0.5 is no signal, 1 a perfect one.
    """

    group: str
    num_valid: int
    num_invalid: int
    entropy_valid: float
    entropy_invalid: float
    entropy_auc: float
    perplexity_valid: float
    perplexity_invalid: float
    perplexity_auc: float


def tabulate_validity(rows: Sequence[ScoredTrajectory]) -> list[ValidityLine]:
    """Return entropy and perplexity of valid and invalid answer-correct trajectories, by difficulty and over all."""
    return [_validity_line(group, members) for group, members in _groups(rows)]


def _groups(rows: Sequence[ScoredTrajectory]) -> list[tuple[str, Sequence[ScoredTrajectory]]]:
    by_difficulty = [(level.value, [row for row in rows if row.difficulty is level]) for level in Difficulty]
    return [*by_difficulty, (ALL, rows)]


def _validity_line(group: str, rows: Sequence[ScoredTrajectory]) -> ValidityLine:
    valid = [row for row in rows if row.is_valid is True]
    invalid = [row for row in rows if row.is_valid is False]
    entropies = [np.array([row.mean_entropy for row in part]) for part in (valid, invalid)]
    perplexities = [np.array([row.perplexity for row in part]) for part in (valid, invalid)]
    return ValidityLine(
        group=group,
        num_valid=len(valid),
        num_invalid=len(invalid),
        entropy_valid=_mean(entropies[0]),
        entropy_invalid=_mean(entropies[1]),
        entropy_auc=area_under_curve(entropies[1].tolist(), entropies[0].tolist()),
        perplexity_valid=_mean(perplexities[0]),
        perplexity_invalid=_mean(perplexities[1]),
        perplexity_auc=area_under_curve(perplexities[1].tolist(), perplexities[0].tolist()),
    )


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if values.size else float("nan")
