import asyncio
import warnings
from types import SimpleNamespace
from typing import Any

import pytest

from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer

pytestmark = [pytest.mark.slow, pytest.mark.verl]


def test_a_rollout_comes_with_its_text_by_the_models_own_tokenizer(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from verl.workers.rollout.replica import TokenOutput

        from exgrpo.jobs.training.engines.verl_ray.agent_loop import TextLoop
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    token_ids = [*tokenizer.encode("a+3=8;"), tokenizer.eos_token_id]

    class Server:
        async def generate(self, **_request: Any) -> TokenOutput:
            return TokenOutput(token_ids=token_ids)

    model = SimpleNamespace(path=str(tmp_path))
    config = SimpleNamespace(config=SimpleNamespace(actor_rollout_ref=SimpleNamespace(model=model)))
    loop = TextLoop(trainer_config=config, server_manager=Server(), tokenizer=None)
    prompt = {"prompt_token_ids": [1], "end_token_ids": [tokenizer.eos_token_id], "sampling_key": ""}
    limits = {"max_new_tokens": 16, "sampling_temperature": 1.0, "is_graded": True}
    output = asyncio.run(loop.run({}, **prompt, **limits))
    assert output.extra_fields["text"] == "a+3=8;"
    assert not output.extra_fields["is_truncated"]
