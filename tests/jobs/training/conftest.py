import json
from pathlib import Path

import pytest

from exgrpo.jobs.tasks.chains.demonstrators import make_tokenizer
from exgrpo.jobs.training.warm_start import make_small_policy
from tests.jobs.training.chat_model import make_chat_model

GENERATION = {"do_sample": False, "temperature": 0.9, "top_p": 0.6}
"""Settings of a model that transformers loads and refuses to save."""
SMALL = {
    "batch_size": 4,
    "mini_batch_size": 4,
    "rollouts_per_question": 2,
    "max_prompt_tokens": 64,
    "max_response_tokens": 8,
}
"""Settings of Algorithm 1 for the models below."""


@pytest.fixture(scope="package")
def model(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    policy = make_small_policy(make_tokenizer(), num_layers=1, width=16, num_heads=2, seed=0)
    policy.model.save_pretrained(folder)
    policy.tokenizer.save_pretrained(folder)
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps(settings | GENERATION))
    return folder


@pytest.fixture(scope="package")
def chat_model(tmp_path_factory) -> Path:
    """A tiny untrained chat model, only read."""
    return make_chat_model(tmp_path_factory.mktemp("chat_model"))
