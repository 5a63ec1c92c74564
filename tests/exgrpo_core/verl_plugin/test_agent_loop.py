"""What the agent loop asks of a generating server."""

import asyncio
import warnings
from typing import Any

import pytest

pytestmark = pytest.mark.verl

PROMPT = {
    "prompt_token_ids": [1, 2], "end_token_ids": [0], "max_new_tokens": 4, "sampling_temperature": 1.0,
    "is_graded": False,
}  # fmt: skip


@pytest.fixture
def prompt_tokens_loop():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from exgrpo_core.verl_plugin.agent_loop import PromptTokensLoop
    return PromptTokensLoop


def asked(prompt_tokens_loop: Any, sampling_key: str, session_id: int) -> dict[str, Any]:
    from verl.workers.rollout.replica import TokenOutput

    requests = []

    class Server:
        async def generate(self, **request: Any) -> TokenOutput:
            requests.append(request)
            return TokenOutput(token_ids=[5, 0])

    loop = prompt_tokens_loop(Server())
    asyncio.run(loop.run({}, **PROMPT, sampling_key=sampling_key, session_id=session_id))
    (request,) = requests
    return request["sampling_params"]


def test_a_response_begins_with_its_prefix_which_counts_against_the_limit(prompt_tokens_loop):
    from verl.workers.rollout.replica import TokenOutput

    requests = []

    class Server:
        async def generate(self, **request: Any) -> TokenOutput:
            requests.append(request)
            return TokenOutput(token_ids=[5, 6, 0], log_probs=[-0.5, -0.25, -1.0])

    arguments = {**PROMPT, "sampling_key": "", "session_id": 0, "prefix_token_ids": [7, 8]}
    output = asyncio.run(prompt_tokens_loop(Server()).run({}, **arguments))
    assert (requests[0]["prompt_ids"], requests[0]["sampling_params"]["max_tokens"]) == ([1, 2, 7, 8], 2)
    assert (output.prompt_ids, output.response_ids) == ([1, 2], [7, 8, 5, 6])
    assert output.response_logprobs == [0.0, 0.0, -0.5, -0.25]
    assert output.extra_fields["is_truncated"] is True


def test_a_request_has_a_seed_where_its_prompt_has_a_key(prompt_tokens_loop):
    seeds = [asked(prompt_tokens_loop, "0/1/2", session)["seed"] for session in (0, 1, 0)]
    assert seeds[0] == seeds[2] != seeds[1]
    assert "seed" not in asked(prompt_tokens_loop, "", 0)
