"""Trajectory selection: which stored trajectory of a drawn question is replayed (Algorithm 1, lines 9 to 15)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from exgrpo_core.config import TrajectorySelection
from exgrpo_core.types import Float32Array, Float64Array, Int64Array, TrajectoryScores


@dataclass(frozen=True, slots=True)
class CandidateMeans:
    """Means over the response tokens of each candidate, shape (N,) each, in nats, oldest candidate first.

    `entropies` are of full-vocabulary entropies, `nlls` of -log pi, `sampled_entropies` of -pi log pi of the sampled
    tokens. Accumulated in float64 and rounded once. `num_tokens` are the candidates' lengths T_i.
    """

    entropies: Float32Array
    nlls: Float32Array
    sampled_entropies: Float32Array
    num_tokens: Int64Array

    def of_question(self, part: slice) -> "CandidateMeans":
        """Return the candidates of one question, which are next to each other."""
        return CandidateMeans(
            self.entropies[part], self.nlls[part], self.sampled_entropies[part], self.num_tokens[part]
        )


SCORES: dict[TrajectorySelection, Callable[[CandidateMeans], Float32Array]] = {
    TrajectorySelection.LOWEST_ENTROPY: lambda means: means.entropies,
    TrajectorySelection.HIGHEST_ENTROPY: lambda means: -means.entropies,
    TrajectorySelection.LOWEST_NLL: lambda means: means.nlls,
    TrajectorySelection.LOWEST_PERPLEXITY: lambda means: _perplexities(means.nlls),
    TrajectorySelection.LOWEST_SAMPLED_ENTROPY: lambda means: means.sampled_entropies,
}
"""The score of each rule but `random`, float32 (N,): the candidate with the lowest is replayed."""


def mean_scores(scores: TrajectoryScores) -> CandidateMeans:
    """Return the means of token-level scores over exactly the T_i tokens of each candidate: nothing is padded.

    Raises:
        ValueError: A candidate has no tokens, or its log-probs and entropies differ in length.
    """
    lengths = np.array([log_probs.size for log_probs in scores.log_probs], dtype=np.int64)
    entropy_lengths = np.array([entropies.size for entropies in scores.entropies], dtype=np.int64)
    if not np.array_equal(lengths, entropy_lengths):
        raise ValueError("scores: expected as many entropies as log-probs for every candidate.")
    if lengths.size == 0:
        empty = np.empty(0, dtype=np.float32)
        return CandidateMeans(empty, empty, empty, lengths)
    if lengths.min() < 1:
        raise ValueError("scores: expected at least one token for every candidate.")
    starts = np.cumsum(lengths) - lengths
    log_probs = np.concatenate(scores.log_probs, dtype=np.float64)
    entropies = np.concatenate(scores.entropies, dtype=np.float64)
    sampled = -np.exp(log_probs) * log_probs

    def means(values: Float64Array) -> Float32Array:
        return (np.add.reduceat(values, starts) / lengths).astype(np.float32)

    return CandidateMeans(means(entropies), means(-log_probs), means(sampled), lengths)


def choose(selection: TrajectorySelection, means: CandidateMeans, rng: np.random.Generator) -> tuple[int, Float32Array]:
    """Return the position of o* among one question's candidates, and the estimator's scores (N,).

    The lowest score is chosen; ties go to the oldest, which is first. A random choice has no scores: NaN.

    Raises:
        ValueError: No candidates, or a score that is not a number.
    """
    num_candidates = means.entropies.size
    if num_candidates == 0:
        raise ValueError("means: expected at least one candidate.")
    if selection is TrajectorySelection.RANDOM:
        return int(rng.integers(num_candidates)), np.full(num_candidates, np.nan, dtype=np.float32)
    scores = SCORES[selection](means)
    if np.isnan(scores).any():
        raise ValueError(f"means: {selection.value} is not a number for a candidate; check the engine's log-probs.")
    return int(np.argmin(scores)), scores


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


def _perplexities(nlls: Float32Array) -> Float32Array:
    with np.errstate(over="ignore"):
        return np.exp(nlls.astype(np.float64)).astype(np.float32)
