"""Scores of k answers, expected over the k that a model might have given of the n that were sampled.

Each is the mean over all draws of k of the n, so it is unbiased for every k up to n.
Source of Pass@k: Chen et al., "Evaluating Large Language Models Trained on Code", 2021, equation 1.
"""

from collections.abc import Sequence
from math import comb

import numpy as np
from numpy.typing import NDArray

Curve = NDArray[np.float64]
"""Values for k = 1 to n, (n,)."""


def pass_at_k(num_correct: int, num_samples: int) -> Curve:
    """Return the chances that at least one of k answers is correct."""
    missed: Curve = _missed(num_samples)[num_samples - num_correct]
    return 1.0 - missed


def best_of_k(scores: Sequence[float], are_correct: Sequence[bool]) -> Curve:
    """Return the chances that the answer with the highest score of k is correct; of equal scores each is as likely."""
    num_samples = len(scores)
    missed = _missed(num_samples)
    values = np.asarray(scores, dtype=np.float64)
    correct = np.asarray(are_correct, dtype=np.float64)
    curve, num_left = np.zeros(num_samples), num_samples
    for score in np.unique(values)[::-1]:
        ties = values == score
        num_below = num_left - int(ties.sum())
        curve += (missed[num_left] - missed[num_below]) * correct[ties].mean()
        num_left = num_below
    return curve


def majority_at_k(num_correct: int, wrong_votes: Sequence[int], num_samples: int) -> Curve:
    """Return the chances that the most frequent of k answers is correct; of equally frequent ones each is as likely.

    Correct answers are one answer, `wrong_votes` count each other one, and what is left gave no answer and no vote.
    """
    votes = np.arange(1, num_correct + 1)
    # A tie of t + 1 answers is won with 1 / (t + 1), the integral of y^t over [0, 1]: each tie is a factor y.
    nodes, weights = np.polynomial.legendre.leggauss(len(wrong_votes) // 2 + 1)
    tie = (nodes + 1) / 2
    num_blank = num_samples - num_correct - sum(wrong_votes)
    # Ways in which others take l of the k draws and none exceeds the votes of the correct answer: (votes, nodes, l).
    ways = np.zeros((num_correct, tie.size, num_samples + 1))
    ways[:, :, : num_blank + 1] = [comb(num_blank, drawn) for drawn in range(num_blank + 1)]
    for count in wrong_votes:
        longer = np.zeros_like(ways)
        for drawn in range(count + 1):
            allowed = np.where(drawn < votes[:, None], 1.0, np.where(drawn == votes[:, None], tie, 0.0))
            longer[:, :, drawn:] += comb(count, drawn) * allowed[:, :, None] * ways[:, :, : num_samples + 1 - drawn]
        ways = longer
    won = np.einsum("vnl,n->vl", ways, weights / 2)
    curve = np.zeros(num_samples)
    for vote in votes:
        curve[vote - 1 :] += comb(num_correct, vote) * won[vote - 1, : num_samples + 1 - vote]
    return curve / np.array([comb(num_samples, k) for k in range(1, num_samples + 1)], dtype=np.float64)


def _missed(num_samples: int) -> NDArray[np.float64]:
    """Return the chances that k of n samples are all among m of them, for each m from 0 to n and k from 1: (n + 1, n).

    They are C(m, k) / C(n, k), a product of k ratios (m - i) / (n - i).
    """
    among = np.arange(num_samples + 1)[:, None]
    before = np.arange(num_samples)[None, :]
    return np.cumprod(np.maximum(among - before, 0) / (num_samples - before), axis=1)
