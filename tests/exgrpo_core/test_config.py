import dataclasses

import pytest

from exgrpo_core.config import HARD, ExGRPOConfig, RetiredRule, RewardKind
from exgrpo_core.errors import FieldError


def test_defaults_are_the_papers():
    config = ExGRPOConfig()
    assert (config.batch_size, config.mini_batch_size, config.rollouts_per_question) == (128, 64, 8)
    assert (config.experience_ratio, config.bucket_center, config.bucket_spread) == (0.5, 0.5, 1.0)
    assert (config.start_pass_rate, config.shaping_beta, config.entropy_coefficient) == (0.35, 0.1, 0.001)
    assert (config.max_prompt_tokens, config.max_response_tokens, config.temperature) == (1024, 8192, 1.0)


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"batch_size": 0}, "batch_size"), ({"mini_batch_size": 48}, "mini_batch_size"),
        ({"rollouts_ahead": True}, "sampler_correction"), ({"rollouts_per_question": 1}, "rollouts_per_question"),
        ({"temperature": 0.0}, "temperature"), ({"experience_ratio": 1.1}, "experience_ratio"),
        ({"bucket_spread": 0.0}, "bucket_spread"), ({"start_pass_rate": 1.5}, "start_pass_rate"),
        ({"candidate_budget": 8, "trajectory_selection": "random"}, "candidate_budget"),
        ({"buffer_capacity": 7}, "buffer_capacity"), ({"buffer_age": 0}, "buffer_age"),
        ({"buffer_age": 4, "rollouts_ahead": True, "sampler_correction": "truncate"}, "rollouts_ahead"),
        ({"reward_kind": RewardKind.CONTINUOUS}, "start_pass_rate"),
        ({"reward_kind": RewardKind.CONTINUOUS, "start_pass_rate": None, "mask_range": HARD}, "mask_range"),
        ({"mask_range": HARD}, "mask_range"),
        ({"review_interval": 25, "retired": RetiredRule.REDRAW}, "review_interval"),
        ({"review_fraction": 0.0}, "review_fraction"), ({"clip_epsilon": 1.0}, "clip_epsilon"),
        ({"shaping_beta": 0.0}, "shaping_beta"), ({"entropy_coefficient": -0.1}, "entropy_coefficient"),
        ({"seed": -1}, "seed"), ({"seed": 2**53}, "seed"),
    ],
)  # fmt: skip
def test_impossible_or_contradictory_settings_name_their_field(changes, named):
    with pytest.raises(FieldError, check=lambda error: error.fields[0] == named):
        dataclasses.replace(ExGRPOConfig(), **changes)
