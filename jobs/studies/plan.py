"""How many seeds a study needs, before its runs are paid for."""

import math
from dataclasses import dataclass
from itertools import count
from statistics import fmean

from jobs.studies.intervals import CONFIDENCE, t_quantile
from jobs.studies.results import StudyResults

POWER = 0.8
"""Chance of finding a difference that is there."""
MOST_SEEDS = 1000


@dataclass(frozen=True, slots=True)
class SeedPlan:
    """Seeds of each cell for a difference, in the unit of the study's figure."""

    difference: float
    spread: float
    """Standard deviation over seeds of a difference to the baseline, paired by seed."""
    num_comparisons: int
    num_seeds: int | None
    """None where more than a thousand are needed."""


def plan_seeds(difference: float, spread: float, num_comparisons: int, power: float = POWER) -> SeedPlan:
    """Return how many seeds find a difference by a paired t test at 5%, divided by the number of comparisons.

    The division is Holm's first step: what passes it passes his correction. n = ((t_level + t_power) spread /
    difference)^2 with quantiles of n - 1 degrees of freedom, which is at most one seed off the exact number.
    """
    wanted = (n for n in count(2) if n > MOST_SEEDS or detectable(n, spread, num_comparisons, power) <= abs(difference))
    num_seeds = next(wanted)
    return SeedPlan(difference, spread, num_comparisons, None if num_seeds > MOST_SEEDS else num_seeds)


def detectable(num_seeds: int, spread: float, num_comparisons: int, power: float = POWER) -> float:
    """Return the smallest difference that so many seeds find with this chance."""
    level = (1.0 - CONFIDENCE) / num_comparisons
    quantiles = t_quantile(num_seeds - 1, 1.0 - level) + t_quantile(num_seeds - 1, 2.0 * power - 1.0)
    return quantiles * spread / math.sqrt(num_seeds)


def measured_spread(results: StudyResults) -> float | None:
    """Return the standard deviation of differences within cells that have run, None without two seeds of any."""
    pairs = [results.difference(result) for result in results.cells]
    squares = [
        sum((value - pair.mean) ** 2 for value in pair.values) / (len(pair.values) - 1)
        for pair in pairs
        if pair is not None and len(pair.values) > 1
    ]
    return math.sqrt(fmean(squares)) if squares else None
