"""The interface between the algorithm and the engine that holds the model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from exgrpo_core.methods.run_strategies import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.types import Experience, Question, RolloutGroup, TrajectoryScores


@dataclass(frozen=True, slots=True)
class RolloutRequest:
    """Ask for `num_rollouts` fresh trajectories of `question`: K, or K-1 where one will be replayed."""

    question: Question
    num_rollouts: int


class PolicyEngine(Protocol):
    """Holds pi_theta. `exgrpo_step` calls `rollout`, `entropies` and `update` in this order, once a step.

    The policy changes in `update` only, so log-probs of `rollout` and `entropies` belong to the same pi_old. One
    caller, one thread; a call returns when its work is done.
    """

    def rollout(self, requests: Sequence[RolloutRequest]) -> list[RolloutGroup]:
        """Return one group a request, in order, each with exactly `num_rollouts` rewarded trajectories.

        A group without any is one whose rollouts failed: the step leaves it out.
        Log-probs are the training model's at rollout temperature. Nothing but temperature shapes the distribution.
        """
        ...

    def entropies(self, questions: Sequence[Question], candidates: Sequence[Experience]) -> TrajectoryScores:
        """Score stored trajectories under the current policy; `questions[i]` is candidate i's question."""
        ...

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Take one optimizer step a mini-batch, in order, and return metrics named as in `step_report.METRICS`."""
        ...
