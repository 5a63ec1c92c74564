"""Selections that the paper compares with its own: of questions, and of trajectories.

Source: the paper's sections 3.2 and 6.2 ("w/o Ques. Sel.", "w/o Traj. Sel.") and its appendix "Alternative Selection
Metrics". `recent` is vanilla replay: every question whose newest trajectory is young enough, with the same probability.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from exgrpo_core.methods.columns import CandidateColumns, QuestionColumns, QuestionDraw
from exgrpo_core.methods.protocols import QuestionSampler, TrajectorySelector
from exgrpo_core.types import Float32Array, Int64Array


class Uniform(QuestionSampler):
    """Every drawable question with the same probability ("w/o Ques. Sel.")."""

    name = "uniform"

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions of any bucket."""
        return questions.draw_evenly(questions.indices, num_questions, rng)


@dataclass(frozen=True, slots=True)
class Recent(QuestionSampler):
    """Questions with a trajectory at most `recent_steps` old, uniformly."""

    name: ClassVar[str] = "recent"
    recent_steps: int

    def draw(self, questions: QuestionColumns, num_questions: int, rng: np.random.Generator) -> QuestionDraw:
        """Return questions that are young enough."""
        is_recent = questions.newest_rollout_steps >= questions.step - self.recent_steps
        return questions.draw_evenly(questions.indices[is_recent], num_questions, rng)


class HighestEntropy(TrajectorySelector):
    """The success of the highest mean entropy, the other end of the paper's rule."""

    name = "highest_entropy"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return mean token entropies, negated."""
        return -candidates.entropies


class LowestNll(TrajectorySelector):
    """The lowest mean of -log pi over its tokens (Algorithm 1's line read literally)."""

    name = "lowest_nll"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return means of -log pi."""
        return candidates.nlls


class LowestPerplexity(TrajectorySelector):
    """The lowest perplexity: the same choice as the lowest mean of -log pi."""

    name = "lowest_perplexity"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return perplexities."""
        with np.errstate(over="ignore"):
            return np.exp(candidates.nlls.astype(np.float64)).astype(np.float32)


class LowestSampledEntropy(TrajectorySelector):
    """The lowest mean of -pi log pi over sampled tokens (the text of section 3.2)."""

    name = "lowest_sampled_entropy"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return those means."""
        return candidates.sampled_entropies


class RandomTrajectory(TrajectorySelector):
    """Any stored trajectory with the same probability ("w/o Traj. Sel.")."""

    name = "random"

    def score(self, candidates: CandidateColumns) -> Float32Array:
        """Return no numbers: nothing is compared."""
        return candidates.no_scores

    def choose(
        self, candidates: CandidateColumns, num_wanted: int, rng: np.random.Generator
    ) -> tuple[Int64Array, Float32Array]:
        """Return positions drawn from `rng`."""
        num_candidates = candidates.num_tokens.size
        if num_wanted == 1:
            return np.array([rng.integers(num_candidates)]), self.score(candidates)
        return rng.choice(num_candidates, min(num_wanted, num_candidates), replace=False), self.score(candidates)
