"""The verl engine of the workbench's training loop."""

from collections.abc import Callable, Sequence
from typing import Any

from exgrpo.jobs.specs.verl import TEXT_AGENT_NAME
from exgrpo.jobs.tasks.grading.reward_function import Response, Verdict
from exgrpo.jobs.training.engines.verl_ray.reward import describe_question
from exgrpo_core.engine import RolloutRequest
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch
from exgrpo_core.types import Question
from exgrpo_core.verl_plugin.engine import Rollout, VerlEngine

Weigh = Callable[[Sequence[Question], Sequence[Response], Sequence[Verdict]], list[Verdict]]
"""Gives verdicts on responses the reward of all of its parts."""


class WorkbenchVerlEngine(VerlEngine):
    """A `VerlEngine` that also answers benchmarks. Its reward can have parts in addition to verl's reward function."""

    agent_name = TEXT_AGENT_NAME
    weigh: Weigh | None = None

    def rewards(self, questions: Sequence[Question], rollouts: Sequence[Rollout]) -> list[float]:
        """Return the reward of each rollout: the weighted sum of the parts, if there are several."""
        if self.weigh is None:
            return super().rewards(questions, rollouts)
        responses = [_response(rollout) for rollout in rollouts]
        verdicts = [Verdict(rollout.reward, rollout.verdict["outcome"]) for rollout in rollouts]
        weighed = self.weigh(questions, responses, verdicts)
        for rollout, verdict in zip(rollouts, weighed, strict=True):
            rollout.verdict["reward_parts"] = verdict.parts
        return [verdict.reward for verdict in weighed]

    def describe_question(self, question: Question) -> dict[str, Any]:
        """Return the columns that this project's graders read."""
        return {
            "data_source": "exgrpo",
            "reward_model": {"style": "rule", "ground_truth": question.answer},
            "extra_info": describe_question(question),
        }

    def update(self, mini_batches: Sequence[MiniBatch], objective: ObjectiveSettings) -> dict[str, float]:
        """Take one optimizer step a mini-batch and count the step, which verl's loop does elsewhere."""
        metrics = super().update(mini_batches, objective)
        self.trainer.global_steps += 1
        return metrics

    def generate_for_evaluation(
        self, questions: Sequence[Question], num_samples: int, temperature: float, max_new_tokens: int, seed: int
    ) -> list[list[Response]]:
        """Return `num_samples` responses a question; temperature 0 is greedy.

        They depend on `seed` alone, unless the engine gives its requests no seeds.

        Raises:
            EngineError: A prompt is too long, or rollouts failed.
        """
        if not questions:
            return []
        requests = [RolloutRequest(question, num_samples) for question in questions]
        key = f"evaluation/{seed}"
        responses = [_response(item) for item in self.generate(requests, key, temperature, max_new_tokens)]
        return [responses[start : start + num_samples] for start in range(0, len(responses), num_samples)]


def _response(rollout: Rollout) -> Response:
    return Response(rollout.text, rollout.token_ids, rollout.is_truncated)
