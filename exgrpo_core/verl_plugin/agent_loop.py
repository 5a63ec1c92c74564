"""The agent loop of every rollout: prompt token ids in, response token ids out, with no tokenisation in between.

It reads these columns of a prompt: `prompt_token_ids`; `sampling_key`, from which a rollout's seed follows, or "" for
none; `sampling_temperature`, `max_new_tokens` and `end_token_ids`; `is_graded`; and, where they are there, `has_text`
and `prefix_token_ids`, with which the response begins and which count as new tokens.
"""

import hashlib
from typing import Any
from uuid import uuid4

from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput, register

from exgrpo_core.verl_plugin.settings import AGENT_NAME

MAX_SEED = 2**31
register_loop = register
"""Decorates a loop that extends this one: its name, as prompts and verl's configuration have it."""


def rollout_seed(sampling_key: str, session_id: int) -> int:
    """Return the seed of one rollout of a group, the same each time that it is drawn."""
    digest = hashlib.sha256(f"{sampling_key}/{session_id}".encode()).digest()
    return int.from_bytes(digest[:8], "little") % MAX_SEED


@register(AGENT_NAME)
class PromptTokensLoop(AgentLoopBase):
    """One request to the generating servers."""

    def __init__(self, server_manager: Any, tokenizer: Any = None, **_verl: Any) -> None:
        # verl's base class builds a chat tokenizer for every rollout, which this loop does not need.
        self.server_manager = server_manager
        self.tokenizer = tokenizer

    async def run(self, sampling_params: dict[str, Any], **prompt: Any) -> AgentLoopOutput:
        """Generate one response; ungraded ones carry a reward of 0, so that verl calls no grader."""
        prompt_ids = [int(token) for token in prompt["prompt_token_ids"]]
        prefix_ids = [int(token) for token in prompt.get("prefix_token_ids", ())]
        end_token_ids = [int(token) for token in prompt["end_token_ids"]]
        max_new_tokens = int(prompt["max_new_tokens"]) - len(prefix_ids)
        sampling: dict[str, Any] = {
            "temperature": float(prompt["sampling_temperature"]),
            "max_tokens": max_new_tokens,
            "stop_token_ids": end_token_ids,
        }
        if key := str(prompt["sampling_key"]):
            sampling["seed"] = rollout_seed(key, int(prompt["session_id"]))
        output = await self.server_manager.generate(
            request_id=uuid4().hex, prompt_ids=prompt_ids + prefix_ids, sampling_params={**sampling_params, **sampling}
        )
        response_ids = prefix_ids + list(output.token_ids[:max_new_tokens])
        log_probs = [0.0] * len(prefix_ids) + list(output.log_probs[:max_new_tokens]) if output.log_probs else None
        is_truncated = not response_ids or response_ids[-1] not in end_token_ids
        result = AgentLoopOutput(
            prompt_ids=prompt_ids,
            response_ids=response_ids,
            response_mask=[1] * len(response_ids),
            response_logprobs=log_probs,
            num_turns=2,
            metrics=AgentLoopMetrics(),
            extra_fields={**output.extra_fields, "is_truncated": is_truncated},
        )
        if prompt.get("has_text"):
            result.extra_fields["text"] = self.tokenizer.decode(response_ids, skip_special_tokens=True)
        if not prompt["is_graded"]:
            result.reward_score = 0.0
        return result
