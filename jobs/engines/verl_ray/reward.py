"""The reward function that verl calls for every rollout (`reward.custom_reward_function`): this project's graders.

Runs in verl's reward workers. verl's mathematics graders are not used: one of them evaluated a model's text as code.
"""

from functools import cache
from typing import Any

import numpy as np

from exgrpo_core.config import RewardKind
from exgrpo_core.types import Question
from jobs.grading.built_in_tasks import TASKS
from jobs.grading.pool import AnswerGrader
from jobs.grading.reward_function import Response, RewardFunction
from jobs.grading.rewards import MathReward
from jobs.specs.train import DataSpec

NO_TOKENS = np.empty(0, dtype=np.int32)


def describe_question(question: Question) -> dict[str, Any]:
    """Return the fields of a question that `compute_score` needs, as verl's `extra_info`."""
    return {
        "index": question.index,
        "question_id": question.question_id,
        "prompt_text": question.prompt_text,
        "metadata": dict(question.metadata),
    }


def compute_score(
    data_source: str,  # noqa: ARG001 # verl's signature; graders use the question's metadata
    solution_str: str,
    ground_truth: str,
    extra_info: dict[str, Any],
    requires_think_end: bool = False,
    reward_kind: str = RewardKind.BINARY.value,
) -> dict[str, Any]:
    """Return `score` and the verdict on one response, whose text verl decoded without special tokens."""
    question = Question(
        index=extra_info["index"],
        question_id=extra_info["question_id"],
        prompt_ids=NO_TOKENS,
        prompt_text=extra_info["prompt_text"],
        answer=ground_truth,
        metadata=extra_info["metadata"],
    )
    response = Response(solution_str, NO_TOKENS, extra_info["is_truncated"])
    answer_kind = str(question.metadata.get("answer_kind"))
    reward = _reward_function(answer_kind, requires_think_end, RewardKind(reward_kind))
    (verdict,) = reward.grade([question], [response])
    return {
        "score": verdict.reward,
        "outcome": verdict.outcome,
        "is_valid": verdict.is_valid,
        "has_code": verdict.has_code,
    }


@cache
def _reward_function(answer_kind: str, requires_think_end: bool, reward_kind: RewardKind) -> RewardFunction:
    """Return this process's grader; its killable processes end with the process."""
    if answer_kind in TASKS:
        return TASKS[answer_kind].make_reward(DataSpec(), reward_kind)
    return MathReward(AnswerGrader(requires_think_end=requires_think_end))
