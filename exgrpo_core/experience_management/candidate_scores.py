"""Columns of candidates: token means of their scores, and which of them a budget scores (Algorithm 1, line 9)."""

from collections.abc import Sequence

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns
from exgrpo_core.types import Experience, Float32Array, Float64Array, Int64Array, TrajectoryScores


def mean_scores(
    scores: TrajectoryScores, num_replays: Int64Array | None = None, experiences: Sequence[Experience] | None = None
) -> CandidateColumns:
    """Return the means of token-level scores over exactly the T_i tokens of each candidate: nothing is padded.

    `num_replays` and `experiences` become columns as they are.

    Raises:
        ValueError: A candidate has no tokens, or its log-probs and entropies differ in length.
    """
    lengths = np.array([log_probs.size for log_probs in scores.log_probs], dtype=np.int64)
    entropy_lengths = np.array([entropies.size for entropies in scores.entropies], dtype=np.int64)
    if not np.array_equal(lengths, entropy_lengths):
        raise ValueError("scores: expected as many entropies as log-probs for every candidate.")
    if lengths.size == 0:
        empty = np.empty(0, dtype=np.float32)
        return CandidateColumns(empty, empty, empty, lengths)
    if lengths.min() < 1:
        raise ValueError("scores: expected at least one token for every candidate.")
    starts = np.cumsum(lengths) - lengths
    log_probs = np.concatenate(scores.log_probs, dtype=np.float64)
    entropies = np.concatenate(scores.entropies, dtype=np.float64)
    sampled = -np.exp(log_probs) * log_probs

    def means(values: Float64Array) -> Float32Array:
        return (np.add.reduceat(values, starts) / lengths).astype(np.float32)

    return CandidateColumns(means(entropies), means(-log_probs), means(sampled), lengths, num_replays, experiences)


def within_budget(last_entropies: Float32Array, budget: int | None) -> Int64Array:
    """Return the positions of at most `budget` candidates, ascending; `last_entropies` are NaN where never scored.

    The candidate of lowest entropy as last scored is kept first, then those never scored, newest first, then the
    others by entropy. Candidates are oldest first, as in the buffer; of equal entropies the oldest is kept first.
    """
    num_candidates = last_entropies.size
    if budget is None or num_candidates <= budget:
        return np.arange(num_candidates)
    is_new = np.isnan(last_entropies)
    newest_first = np.arange(num_candidates)[::-1] - num_candidates
    ranks = np.where(is_new, newest_first, last_entropies.astype(np.float64))
    if not is_new.all():
        ranks[np.nanargmin(last_entropies)] = -np.inf
    return np.sort(np.argsort(ranks, kind="stable")[:budget])
