"""The reward functions that verl calls for every rollout (`reward.custom_reward_function`), in its reward workers.

`compute_score` asks this project's graders; verl's are not used: one of them evaluated a model's text as code.
`score_by_model` asks a reward model that verl serves on separate GPUs: verl 0.9.1 can call it, but drops the answer's
extra fields and then fails without them. verl passes the address of its router and the model's tokenizer.
"""

import json
import math
import urllib.request
from functools import cache
from typing import Any

import numpy as np

from exgrpo.jobs.specs.train import DataSpec
from exgrpo.jobs.tasks.grading.answer_grader import AnswerGrader
from exgrpo.jobs.tasks.grading.reward_function import Response, RewardFunction
from exgrpo.jobs.tasks.grading.rewards import TASKS, MathReward
from exgrpo.jobs.training.pretrained.chat_templates import render_conversation
from exgrpo_core.config import RewardKind
from exgrpo_core.errors import EngineError
from exgrpo_core.types import Question

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


ANSWER_SECONDS = 600.0


def score_by_model(
    data_source: str,  # noqa: ARG001 # verl's signature
    solution_str: str,
    ground_truth: str,  # noqa: ARG001 # likewise: a reward model reads none
    extra_info: dict[str, Any],
    model: str,
    reward_router_address: str,
    reward_model_tokenizer: Any,
) -> dict[str, Any]:
    """Return the reward model's score of the question with this response as `score`; there is no verdict.

    Raises:
        EngineError: The server does not answer with one finite number.
    """
    question = str(extra_info["metadata"].get("question") or extra_info["prompt_text"])
    text = conversation_text(question, solution_str, reward_model_tokenizer)
    answer = _ask(f"http://{reward_router_address}/classify", {"model": model, "input": text, "use_activation": False})
    return {"score": _score_of(answer), "outcome": "", "is_valid": None, "has_code": None}


def conversation_text(question: str, response: str, tokenizer: Any) -> str:
    """Return question and response in the reward model's chat template, without the start token the server adds."""
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": response}]
    template = tokenizer.get_chat_template()
    text = render_conversation(template, tokenizer.special_tokens_map, messages, adds_turn=False)
    return text.removeprefix(tokenizer.bos_token or "")


def _ask(url: str, payload: dict[str, Any]) -> object:
    body = json.dumps(payload).encode()
    request = urllib.request.Request(url, body, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_SECONDS) as response:
            return json.load(response)
    except (OSError, ValueError) as error:
        raise EngineError(f"reward model at {url}: does not answer ({error}); see its log.") from None


def _score_of(answer: Any) -> float:
    try:
        score = float(answer["data"][-1]["probs"][-1])
    except (KeyError, IndexError, TypeError, ValueError):
        raise EngineError(f"reward model: expected one score, got {str(answer)[:80]}.") from None
    if not math.isfinite(score):
        raise EngineError(f"reward model: expected a finite score, got {score}.")
    return score
