"""A policy engine without a model: success rates are given, tokens are random, the order of calls is checked."""

import numpy as np

from exgrpo_core.engine import RolloutRequest
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.types import RolloutGroup, Trajectory, TrajectoryScores


class ToyEngine:
    """Solves question i with probability `success_rates[i]`; scores are a fixed function of the tokens."""

    def __init__(self, success_rates, seed=0, rewards=None):
        self.success_rates = success_rates
        self.rng = np.random.default_rng(seed)
        self.rewards = rewards
        self.calls: list[str] = []
        self.requests: list[RolloutRequest] = []
        self.mini_batches: list[MiniBatch] = []
        self.objectives: list[ObjectiveSettings] = []
        self.scored: list[int] = []

    def rollout(self, requests):
        self.calls.append("rollout")
        self.requests = list(requests)
        groups = [
            RolloutGroup(r.question, [self._trajectory(r.question) for _ in range(r.num_rollouts)]) for r in requests
        ]
        for request, group in zip(requests, groups, strict=True):
            for item in group.trajectories if request.prefix_ids.size else ():
                item.token_ids = np.concatenate((request.prefix_ids, item.token_ids))
                item.log_probs = np.concatenate((np.full(request.prefix_ids.size, -0.5, np.float32), item.log_probs))
        return groups

    def _trajectory(self, question):
        ids = self.rng.integers(0, 50, int(self.rng.integers(1, 9)), dtype=np.int32)
        is_correct = self.rng.random() < self.success_rates[question.index]
        reward = float(is_correct) if self.rewards is None else float(self.rewards(question.index, self.rng))
        return Trajectory(question.index, ids, -self.rng.random(ids.size, dtype=np.float32), reward)

    def entropies(self, questions, candidates):
        self.calls.append("entropies")
        assert all(q.index == c.question_index for q, c in zip(questions, candidates, strict=True))
        self.scored = [candidate.trajectory_id for candidate in candidates]
        return TrajectoryScores(
            [-0.01 * candidate.token_ids.astype(np.float32) for candidate in candidates],
            [0.1 + candidate.token_ids.astype(np.float32) for candidate in candidates],
        )

    def update(self, mini_batches, objective):
        self.calls.append("update")
        self.mini_batches += mini_batches
        self.objectives.append(objective)
        return {"loss/total": 0.0, "optim/gradient_norm": 0.0}
