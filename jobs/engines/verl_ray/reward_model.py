"""The reward function of continuous rewards: the score of a reward model that verl serves on separate GPUs.

verl 0.9.1 can call such a model, but drops the answer's extra fields and then fails without them. So this project calls
it: verl passes the address of its router and the model's tokenizer.
"""

import json
import math
import urllib.request
from typing import Any, Protocol

from exgrpo_core.errors import EngineError
from jobs.pretrained.chat_templates import ChatTokenizer, render_in_process

ANSWER_SECONDS = 600.0


class RewardTokenizer(ChatTokenizer, Protocol):
    """The part of the reward model's tokenizer that is used."""

    bos_token: str | None


def compute_score(
    data_source: str,  # noqa: ARG001 # verl's signature
    solution_str: str,
    ground_truth: str,  # noqa: ARG001 # likewise: a reward model reads none
    extra_info: dict[str, Any],
    model: str,
    reward_router_address: str,
    reward_model_tokenizer: RewardTokenizer,
) -> dict[str, Any]:
    """Return the reward model's score of the question with this response as `score`; there is no verdict.

    Raises:
        EngineError: The server does not answer with one finite number.
    """
    question = str(extra_info["metadata"].get("question") or extra_info["prompt_text"])
    text = conversation_text(question, solution_str, reward_model_tokenizer)
    answer = _ask(f"http://{reward_router_address}/classify", {"model": model, "input": text, "use_activation": False})
    return {"score": _score_of(answer), "outcome": "", "is_valid": None, "has_code": None}


def conversation_text(question: str, response: str, tokenizer: RewardTokenizer) -> str:
    """Return question and response in the reward model's chat template, without the start token the server adds."""
    messages = [{"role": "user", "content": question}, {"role": "assistant", "content": response}]
    template = tokenizer.get_chat_template()
    text = render_in_process(template, tokenizer.special_tokens_map, messages, adds_turn=False)
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
