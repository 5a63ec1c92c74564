import math
from itertools import combinations

import numpy as np
import pytest

from exgrpo.db.rows.chains_of_thought import Difficulty
from exgrpo.jobs.evaluation.analysis.score_curves import (
    best_of_k,
    by_difficulty,
    majority_at_k,
    mean_curves,
    pass_at_k,
    read_question_curves,
    read_score_curves,
)
from tests.jobs.evaluation.analysis.recorded_samples import append


def curves(run_path, scheme="paper"):
    return {curve.measure: curve for curve in read_score_curves(run_path, "sums", scheme)}


def test_each_measure_is_the_mean_over_questions(tmp_path):
    append(tmp_path / "run", "easy", [("4", -1.0), ("4", -2.0), ("5", -3.0)])
    append(tmp_path / "run", "hard", [("4", -9.0), ("7", -2.0), (" 7 ", -3.0)])
    drawn = curves(tmp_path / "run")
    assert drawn["pass@k"].values == pytest.approx((1 / 2, (1 + 2 / 3) / 2, 1))
    assert drawn["maj@k"].values == pytest.approx((1 / 2, (2 / 3 + 1 / 3) / 2, 1 / 2))
    assert drawn["best by log-prob"].values == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    assert drawn["best by reward"].values == pytest.approx((1 / 2, 1 / 2, 1 / 2))
    # Of 2/3, 1/3 and 0, 0, 1, 1: .5 -+ z sqrt((2 / 36 + 1) / 6 / 6); of 1, 1 and these: 2/3 -+ z sqrt(2 / 9 / 6).
    assert (drawn["pass@k"].low[0], drawn["pass@k"].high[0]) == pytest.approx((0.16439, 0.83561), abs=1e-5)
    assert (drawn["pass@k"].low[2], drawn["pass@k"].high[2]) == pytest.approx((0.28947, 1.0), abs=1e-5)
    assert curves(tmp_path / "run", "training")["pass@k"].values == (0, 0, 0)


@pytest.mark.parametrize(("first", "second", "third"), [("0.5", r"\frac{1}{2}", "1/2"), ("B", "(B)", r"\text{B}")])
def test_answers_that_plainly_say_the_same_are_one_vote(tmp_path, first, second, third):
    append(tmp_path, "q", [(answer, None) for answer in ("4", "4", first, second, third)])
    assert curves(tmp_path)["maj@k"].values[-1] == 0
    append(tmp_path, "q", [(answer, None) for answer in ("4", "4", first, "-1/2", "x")], attempt=2)
    assert curves(tmp_path)["maj@k"].values[-1] == 1


def test_a_single_question_has_no_interval_and_answers_without_log_prob_no_curve_of_it(tmp_path):
    append(tmp_path / "run", "easy", [("4", None), ("5", -2.0)])
    drawn = curves(tmp_path / "run")
    assert drawn["pass@k"].values == (0.5, 1)
    assert all(map(math.isnan, (*drawn["pass@k"].low, *drawn["pass@k"].high)))
    assert drawn["best by log-prob"].values == ()
    assert read_score_curves(tmp_path, "sums", "paper") == []


def test_difficulty_is_the_models_mean_share_of_correct_answers_to_common_questions(tmp_path):
    for name, first, second in (("a", "44", "44"), ("b", "45", "44"), ("c", "45", "55"), ("d", "44", "")):
        append(tmp_path / "first", name, [(answer, None) for answer in first])
        if second:
            append(tmp_path / "second", name, [(answer, None) for answer in second])
    models = [read_question_curves(tmp_path / run, "sums", "paper") for run in ("first", "second")]
    groups = by_difficulty(models)
    # (1 + 1) / 2, (.5 + 1) / 2 = .75, (.5 + 0) / 2 = .25; "d" has one model's answers alone.
    assert groups == {Difficulty.EASY: ["a"], Difficulty.MEDIUM: ["b"], Difficulty.HARD: ["c"]}
    (pass_at_k, *_) = mean_curves([models[0][name] for name in groups[Difficulty.MEDIUM]])
    assert pass_at_k.values == (0.5, 1)
    assert mean_curves([]) == []


def test_pass_at_k_is_one_minus_the_chance_to_miss_every_correct_answer():
    assert pass_at_k(1, 4) == pytest.approx([1 / 4, 1 / 2, 3 / 4, 1])
    assert pass_at_k(2, 4) == pytest.approx([1 / 2, 1 - 1 / 6, 1, 1])
    assert pass_at_k(0, 2) == pytest.approx([0, 0])
    assert pass_at_k(300, 1000)[0] == pytest.approx(0.3)


def test_best_of_k_takes_the_highest_score_and_shares_ties():
    assert best_of_k([3.0, 2.0, 1.0], [False, True, False]) == pytest.approx([1 / 3, 1 / 3, 0])
    assert best_of_k([1.0, 1.0, 0.0], [True, False, False]) == pytest.approx([1 / 3, 1 / 2, 1 / 2])
    assert best_of_k([0, 1, 0, 1, 0], [False, True, False, True, False]) == pytest.approx(pass_at_k(2, 5))


def test_majority_of_hand_counted_votes():
    # Of 2 correct, 1 wrong: three pairs, of which one is all correct and two are ties.
    assert majority_at_k(2, [1], 3) == pytest.approx([2 / 3, 2 / 3, 1])
    # 1 correct, 2 equal wrong ones: pairs are one loss and two ties; of all three the wrong one wins.
    assert majority_at_k(1, [2], 3) == pytest.approx([1 / 3, 1 / 3, 0])
    # What gave no answer does not vote: one correct answer beats any number of them.
    assert majority_at_k(1, [], 3) == pytest.approx(pass_at_k(1, 3))
    assert majority_at_k(0, [1, 2], 3) == pytest.approx([0, 0, 0])


def test_majority_is_the_mean_over_all_draws():
    answers = ["right"] * 3 + ["a"] * 3 + ["b"] * 2 + ["c", "d", "", ""]
    expected = []
    for k in range(1, len(answers) + 1):
        shares = []
        for drawn in combinations(answers, k):
            votes = {answer: drawn.count(answer) for answer in drawn if answer}
            top = [answer for answer, count in votes.items() if count == max(votes.values())]
            shares.append("right" in top and 1 / len(top))
        expected.append(np.mean(shares))
    assert majority_at_k(3, [3, 2, 1, 1], len(answers)) == pytest.approx(expected)
