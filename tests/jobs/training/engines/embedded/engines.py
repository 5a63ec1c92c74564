"""Embedded engines on tiny models, with a reward that varies inside a group."""

import dataclasses

import numpy as np

from exgrpo.jobs.tasks.grading.reward_function import Response, Verdict
from exgrpo.jobs.training.engines.embedded.engine import EmbeddedEngine
from exgrpo.jobs.training.engines.embedded.lora import LoraSettings
from exgrpo.jobs.training.engines.embedded.model import train_adapters
from exgrpo.jobs.training.engines.embedded.update import OptimSettings
from exgrpo_core.config import ExGRPOConfig
from exgrpo_core.types import Question
from tests.jobs.training.engines.embedded.prompts import ragged_prompts
from tests.jobs.training.engines.tiny_models import build_policy

CONFIG = ExGRPOConfig(
    batch_size=8,
    mini_batch_size=4,
    rollouts_per_question=4,
    max_prompt_tokens=16,
    max_response_tokens=20,
    policy_loss_factor=4.0,
    temperature=0.8,  # not the default: whatever forgets to hand it over shows
    start_pass_rate=None,
    entropy_coefficient=0.0,
)
SMALL = {"batch_size": 4, "mini_batch_size": 2, "max_response_tokens": 8}
"""Changes of `CONFIG` for tests of many settings."""
LORA = LoraSettings(
    rank=4, alpha=16, target_modules=("q_proj", "k_proj", "o_proj", "up_proj", "down_proj"), base="base"
)


class EvenTokenReward:
    """Right when the first token's number is even: about half of all random responses."""

    def grade(self, questions, responses: list[Response]) -> list[Verdict]:
        assert len(questions) == len(responses)
        rewards = [float(response.token_ids[0] % 2 == 0) for response in responses]
        return [Verdict(reward, "correct" if reward else "wrong", has_code=False) for reward in rewards]


def make_questions(count: int = 12) -> list[Question]:
    prompts = ragged_prompts(count, seed=7)
    return [Question(i, f"q{i}", prompt, f"question {i}", "0") for i, prompt in enumerate(prompts)]


def make_engine(architecture: str = "qwen2_tied", seed: int = 0, **changes) -> EmbeddedEngine:
    """Return an engine; an architecture that ends in `+lora` has adapters on its frozen weights."""
    config = dataclasses.replace(CONFIG, **changes)
    policy = build_policy(architecture.removesuffix("+lora"))
    if not architecture.endswith("+lora"):
        return EmbeddedEngine(policy, EvenTokenReward(), config, OptimSettings(learning_rate=2e-3), seed)
    train_adapters(policy, LORA, seed)
    return EmbeddedEngine(policy, EvenTokenReward(), config, OptimSettings(learning_rate=2e-2), seed)


def same_weights(one: EmbeddedEngine, other: EmbeddedEngine) -> bool:
    mine, theirs = one.policy.model.state_dict(), other.policy.model.state_dict()
    return all(np.array_equal(mine[name].numpy(), theirs[name].numpy()) for name in mine)
