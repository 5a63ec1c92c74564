from itertools import combinations

import numpy as np
import pytest

from jobs.analysis.best_of_k import best_of_k, majority_at_k, pass_at_k


def test_pass_at_k_is_one_minus_the_chance_to_miss_every_correct_answer():
    assert pass_at_k(1, 4) == pytest.approx([1 / 4, 1 / 2, 3 / 4, 1])
    assert pass_at_k(2, 4) == pytest.approx([1 / 2, 1 - 1 / 6, 1, 1])
    assert pass_at_k(0, 2) == pytest.approx([0, 0])
    assert pass_at_k(300, 1000)[0] == pytest.approx(0.3)


def test_best_of_k_takes_the_highest_score_and_shares_ties():
    assert best_of_k([3.0, 2.0, 1.0], [False, True, False]) == pytest.approx([1 / 3, 1 / 3, 0])
    assert best_of_k([1.0, 1.0, 0.0], [True, False, False]) == pytest.approx([1 / 3, 1 / 2, 1 / 2])


def test_best_by_correctness_itself_is_pass_at_k():
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
