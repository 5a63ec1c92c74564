"""A judge's reliability: its verdicts against human labels, and rates corrected for its errors.

"Positive" is a valid chain of thought. Unjudged items are left out of rates and counted apart.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from exgrpo.db.statistics import Z_95, Rate, wilson
from exgrpo.jobs.evaluation.judging.verdicts import decide, has_flipped


@dataclass(frozen=True, slots=True)
class LabelledVotes:
    """One item of a calibration: a human's label and the judge's votes (valid, invalid or unjudged)."""

    label: bool
    outcomes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Calibration:
    """A judge against labels.

    `sensitivity` is the share of valid chains that it calls valid, `specificity` that of invalid ones it calls
    invalid. `kappa` is Cohen's, agreement beyond chance. `unjudged` is the share of items without a verdict, `flips`
    that of items voted on more than once whose votes contradict each other; NaN if there was none.
    """

    num_items: int
    sensitivity: Rate
    specificity: Rate
    accuracy: float
    kappa: float
    unjudged: Rate
    flips: Rate


@dataclass(frozen=True, slots=True)
class CorrectedRate:
    """A rate of valid chains as the judge observed it, and corrected, with a 95% interval.

    `is_informative` is False if the judge is no better than chance, so that no rate can be estimated.
    """

    observed: Rate
    value: float
    low: float
    high: float
    is_informative: bool


def group_votes(votes: Iterable[tuple[str, bool, str]]) -> list[LabelledVotes]:
    """Return votes on labelled items, (item, label, outcome) each, item by item."""
    labels: dict[str, bool] = {}
    outcomes: dict[str, list[str]] = {}
    for item_id, label, outcome in votes:
        labels[item_id] = label
        outcomes.setdefault(item_id, []).append(outcome)
    return [LabelledVotes(labels[item_id], tuple(item)) for item_id, item in outcomes.items()]


def calibrate(items: Sequence[LabelledVotes]) -> Calibration:
    """Compare a judge's verdicts with labels."""
    pairs = [(item.label, decide(item.outcomes)) for item in items]
    judged = [(label, verdict) for label, verdict in pairs if verdict is not None]
    several = [item for item in items if len(item.outcomes) > 1]
    true_positives = sum(label and verdict for label, verdict in judged)
    true_negatives = sum(not label and not verdict for label, verdict in judged)
    num_positives = sum(label for label, _ in judged)
    return Calibration(
        num_items=len(items),
        sensitivity=wilson(true_positives, num_positives),
        specificity=wilson(true_negatives, len(judged) - num_positives),
        accuracy=(true_positives + true_negatives) / len(judged) if judged else math.nan,
        kappa=cohen_kappa(Counter(judged)),
        unjudged=wilson(len(items) - len(judged), len(items)),
        flips=wilson(sum(has_flipped(item.outcomes) for item in several), len(several)),
    )


def correct_rate(num_valid: int, num_judged: int, calibration: Calibration) -> CorrectedRate:
    """Return the Rogan-Gladen estimate of the true rate of valid chains, with an interval by the delta method.

    p = (q + specificity - 1) / (sensitivity + specificity - 1), clamped to [0, 1]; its variance includes that the
    observed rate q, sensitivity and specificity are all estimates (Rogan and Gladen, 1978). Source of the variance:
    (var q + p^2 var sensitivity + (1 - p)^2 var specificity) / (sensitivity + specificity - 1)^2.
    """
    observed = wilson(num_valid, num_judged)
    sensitivity, specificity = calibration.sensitivity, calibration.specificity
    power = sensitivity.value + specificity.value - 1.0
    if not num_judged or math.isnan(power) or power <= 0.0:
        return CorrectedRate(observed, math.nan, 0.0, 1.0, is_informative=False)
    raw = (observed.value + specificity.value - 1.0) / power
    value = min(1.0, max(0.0, raw))
    variance = _variance(observed) + value**2 * _variance(sensitivity) + (1.0 - value) ** 2 * _variance(specificity)
    reach = Z_95 * math.sqrt(variance) / power
    return CorrectedRate(observed, value, max(0.0, value - reach), min(1.0, value + reach), is_informative=True)


def cohen_kappa(counts: Mapping[tuple[bool, bool], int]) -> float:
    """Return agreement beyond chance, from the counts of each pair of verdicts.

    1 is full agreement, 0 that of chance; NaN if chance alone would agree fully.
    """
    total = sum(counts.values())
    if not total:
        return math.nan
    agreement = sum(count for (first, second), count in counts.items() if first == second) / total
    first_rate = sum(count for (first, _), count in counts.items() if first) / total
    second_rate = sum(count for (_, second), count in counts.items() if second) / total
    by_chance = first_rate * second_rate + (1 - first_rate) * (1 - second_rate)
    return math.nan if by_chance == 1.0 else (agreement - by_chance) / (1.0 - by_chance)


def _variance(rate: Rate) -> float:
    """Return the variance of an estimated rate, with one success and one failure added so that 0 of n has one."""
    share = (rate.value * rate.num_items + 1.0) / (rate.num_items + 2.0)
    return share * (1.0 - share) / (rate.num_items + 2.0)
