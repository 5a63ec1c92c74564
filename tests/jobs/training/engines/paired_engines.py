"""Two engines that learn from the same rollouts, to compare what they score and learn."""

import copy
from collections.abc import Sequence

import numpy as np

from exgrpo_core.engine import PolicyEngine, RolloutRequest
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.types import Experience, Question, RolloutGroup, TrajectoryScores
from tests.jobs.training.engines.contract import stored, training_rows
from tests.jobs.training.engines.embedded.engines import make_engine, make_questions


class PairedEngines:
    """A `PolicyEngine` that rolls out with the first of two and scores and updates both.

    `log_prob_gap` is the largest difference of their scores so far, `metric_gaps` those of the updates' metrics,
    relative where a metric is above 1.
    """

    def __init__(self, first: PolicyEngine, second: PolicyEngine) -> None:
        self._first, self._second = first, second
        self.log_prob_gap = 0.0
        self.metric_gaps: dict[str, float] = {}

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        groups = self._first.rollout(requests)
        fresh = [trajectory for group in groups for trajectory in group.trajectories]
        questions = [group.question for group in groups for _ in group.trajectories]
        stored = [Experience(0, 0, item.question_index, 0, 0.0, item.token_ids, item.log_probs) for item in fresh]
        self._compare([item.log_probs for item in fresh], self._second.entropies(questions, stored).log_probs)
        return groups

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        scores, others = self._first.entropies(questions, candidates), self._second.entropies(questions, candidates)
        self._compare([*scores.log_probs, *scores.entropies], [*others.log_probs, *others.entropies])
        return scores

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        others = self._second.update(copy.deepcopy(mini_batches), objective)
        metrics = self._first.update(mini_batches, objective)
        for name in metrics.keys() - {"generator/log_prob_gap", "generator/log_prob_gap_max"}:
            gap = abs(metrics[name] - others[name]) / max(1.0, abs(metrics[name]))
            self.metric_gaps[name] = max(self.metric_gaps.get(name, 0.0), gap)
        return metrics

    def assert_equal(self, tolerance: float) -> None:
        """Fail unless all scores and metrics so far were the same."""
        assert self.log_prob_gap < tolerance
        assert max(self.metric_gaps.values()) < tolerance, self.metric_gaps

    def _compare(self, mine: Sequence[np.ndarray], theirs: Sequence[np.ndarray]) -> None:
        gaps = [float(np.abs(one - other).max()) for one, other in zip(mine, theirs, strict=True)]
        self.log_prob_gap = max(self.log_prob_gap, *gaps)


def check_parity(first: PolicyEngine, second: PolicyEngine, objective: ObjectiveSettings) -> None:
    """Fail unless two new engines score the same and take an optimizer step of the same metrics to the same policy."""
    pair = PairedEngines(first, second)
    candidates = stored(pair.rollout([RolloutRequest(question, 3) for question in make_questions()]))
    pair.entropies(*candidates)
    pair.update([make_mini_batch()], objective)
    pair.assert_equal(1e-4)
    # A first step of Adam follows the signs of gradients, those of near-zero ones included.
    pair.entropies(*candidates)
    assert pair.log_prob_gap < 0.02


def make_mini_batch() -> MiniBatch:
    """Fresh and replayed rows of varied length; replayed ones were likelier under the policy that wrote them."""
    questions = make_questions()
    groups = make_engine(seed=1).rollout([RolloutRequest(question, 4) for question in questions[:6]])
    fresh = training_rows(groups[:3], [1.0, -0.5, -0.75, 0.25] * 3)
    replayed = training_rows(groups[3:], [0.75, -0.5, -0.25, 0.0] * 3, is_replayed=True)
    rng = np.random.default_rng(0)
    for row in (*fresh, *replayed):
        row.behavior_log_probs[:] -= rng.normal(0.3 * row.is_replayed, 0.2, row.token_ids.size).astype(np.float32)
    return MiniBatch(fresh + replayed, 3)
