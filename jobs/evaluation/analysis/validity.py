"""Entropy and perplexity against validity, as in the paper's figures.

All statistics are over answer-correct trajectories, as the paper's judge saw only those.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exgrpo.db.rows.chains_of_thought import ALL, Difficulty, EntropyPoint
from exgrpo.db.statistics import MeanInterval, mean_interval

_SIGNALS = {"entropy": "mean_entropy", "perplexity": "perplexity"}
"""The field of a point that each signal is."""


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
    half_intervals: dict[str, float]
    """Half of the 95% interval of each mean by its field, NaN of fewer than two trajectories."""


def tabulate_validity(rows: Sequence[EntropyPoint]) -> list[ValidityLine]:
    """Return entropy and perplexity of valid and invalid answer-correct trajectories, by difficulty and over all."""
    groups = [(level.value, [row for row in rows if row.difficulty is level]) for level in Difficulty]
    return [_validity_line(group, members) for group, members in (*groups, (ALL, rows))]


def _validity_line(group: str, rows: Sequence[EntropyPoint]) -> ValidityLine:
    valid = [row for row in rows if row.is_valid is True]
    invalid = [row for row in rows if row.is_valid is False]
    parts = {"valid": valid, "invalid": invalid}
    values = {
        f"{name}_{end}": [float(getattr(row, field)) for row in part]
        for name, field in _SIGNALS.items()
        for end, part in parts.items()
    }
    means = {name: mean_interval(of) if of else MeanInterval(math.nan, math.nan, ()) for name, of in values.items()}
    return ValidityLine(
        group=group,
        num_valid=len(valid),
        num_invalid=len(invalid),
        entropy_valid=means["entropy_valid"].mean,
        entropy_invalid=means["entropy_invalid"].mean,
        entropy_auc=area_under_curve(values["entropy_invalid"], values["entropy_valid"]),
        perplexity_valid=means["perplexity_valid"].mean,
        perplexity_invalid=means["perplexity_invalid"].mean,
        perplexity_auc=area_under_curve(values["perplexity_invalid"], values["perplexity_valid"]),
        half_intervals={name: interval.half for name, interval in means.items()},
    )


def area_under_curve(positives: Sequence[float], negatives: Sequence[float]) -> float:
    """Return the chance that a positive's score is above a negative's, ties counted half; NaN without both."""
    if not len(positives) or not len(negatives):
        return float("nan")
    below = np.sort(np.asarray(negatives, dtype=np.float64))
    scores = np.asarray(positives, dtype=np.float64)
    num_less = np.searchsorted(below, scores, side="left")
    num_less_or_equal = np.searchsorted(below, scores, side="right")
    return float((num_less + num_less_or_equal).mean() / (2 * below.size))
