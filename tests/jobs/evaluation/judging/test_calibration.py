import math
import random

import pytest

from exgrpo.jobs.evaluation.judging.calibration import LabelledVotes, calibrate, cohen_kappa, correct_rate
from exgrpo.jobs.evaluation.judging.verdicts import decide, has_flipped

pytestmark = pytest.mark.slow

VALID, INVALID, NONE = ("valid",), ("invalid",), ("unjudged",)


def items(true_positive, false_negative, true_negative, false_positive, unjudged=0):
    return (
        [LabelledVotes(True, VALID)] * true_positive
        + [LabelledVotes(True, INVALID)] * false_negative
        + [LabelledVotes(False, INVALID)] * true_negative
        + [LabelledVotes(False, VALID)] * false_positive
        + [LabelledVotes(True, NONE)] * unjudged
    )


@pytest.mark.parametrize(
    ("outcomes", "verdict", "flipped"),
    [
        (["valid"], True, False), (["invalid", "invalid", "valid"], False, True), (["valid", "invalid"], None, True),
        (["unjudged"], None, False), (["unjudged", "valid", "unjudged"], True, False), ([], None, False),
    ],
)  # fmt: skip
def test_the_majority_of_votes_decides_and_a_tie_is_no_verdict(outcomes, verdict, flipped):
    assert decide(outcomes) is verdict
    assert has_flipped(outcomes) is flipped


def test_sensitivity_specificity_and_kappa_are_those_worked_by_hand():
    measured = calibrate(items(40, 10, 30, 20, unjudged=25))
    assert measured.sensitivity.value == pytest.approx(0.8)
    assert measured.specificity.value == pytest.approx(0.6)
    assert measured.accuracy == pytest.approx(0.7)
    # Observed agreement .7; by chance .5 * .6 + .5 * .4 = .5.
    assert measured.kappa == pytest.approx(0.4)
    assert measured.unjudged.value == pytest.approx(0.2)
    assert (measured.num_items, measured.sensitivity.num_items, measured.specificity.num_items) == (125, 50, 50)
    assert math.isnan(measured.flips.value)


def test_flips_are_those_of_items_voted_on_more_than_once():
    votes = [("valid", "invalid", "valid"), ("valid", "valid"), ("valid",), ("unjudged", "invalid")]
    measured = calibrate([LabelledVotes(True, outcomes) for outcomes in votes])
    assert measured.flips.value == pytest.approx(1 / 3)
    assert measured.flips.num_items == 3


def test_kappa_of_full_agreement_is_1_and_of_one_class_alone_unknown():
    assert cohen_kappa({(True, True): 1, (False, False): 1}) == 1.0
    assert math.isnan(cohen_kappa({(True, True): 3}))
    assert math.isnan(cohen_kappa({(True, True): 0}))


def test_a_rate_is_corrected_by_rogan_and_gladen():
    # Sensitivity .8, specificity .6: a true rate of .5 is seen as .5 * .8 + .5 * .4 = .6.
    corrected = correct_rate(600, 1000, calibrate(items(400, 100, 300, 200)))
    assert corrected.value == pytest.approx(0.5)
    assert corrected.is_informative


def test_a_judge_no_better_than_a_coin_tells_nothing():
    corrected = correct_rate(50, 100, calibrate(items(25, 25, 25, 25)))
    assert not corrected.is_informative
    assert (corrected.low, corrected.high) == (0.0, 1.0)
    assert math.isnan(corrected.value)


def test_the_corrected_interval_holds_the_truth_about_as_often_as_it_says():
    rng = random.Random(0)
    truth, sensitivity, specificity = 0.7, 0.9, 0.75
    hits = 0
    for _ in range(400):
        true_positive = sum(rng.random() < sensitivity for _ in range(200))
        true_negative = sum(rng.random() < specificity for _ in range(200))
        seen = sum(rng.random() < (sensitivity if rng.random() < truth else 1 - specificity) for _ in range(300))
        measured = calibrate(items(true_positive, 200 - true_positive, true_negative, 200 - true_negative))
        corrected = correct_rate(seen, 300, measured)
        hits += corrected.low <= truth <= corrected.high
    assert 0.92 <= hits / 400 <= 0.99
