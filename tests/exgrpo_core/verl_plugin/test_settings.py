"""What the plug-in reads of verl's configuration and what it refuses; verl's own files of it are not needed."""

import copy

import pytest

from exgrpo_core.config import ExGRPOConfig, LossAggregation, RetiredRule
from exgrpo_core.errors import InputError
from exgrpo_core.verl_plugin.settings import DECIDED, NOT_HERE, read_settings

VERL = {
    "algorithm": {
        "adv_estimator": "grpo", "norm_adv_by_std_in_grpo": True, "use_kl_in_reward": False,
        "filter_groups": {"enable": False},
        "rollout_correction": {"rollout_is": None, "rollout_rs": None, "bypass_mode": False},
    },
    "data": {
        "train_batch_size": 128, "max_prompt_length": 512, "max_response_length": 1024, "shuffle": True, "seed": None,
    },
    "actor_rollout_ref": {
        "actor": {
            "strategy": "fsdp", "ppo_mini_batch_size": 64, "ppo_epochs": 1, "policy_loss": {"loss_mode": "vanilla"},
            "loss_agg_mode": "seq-mean-token-sum-norm", "loss_scale_factor": None, "clip_ratio_low": 0.2,
            "clip_ratio_high": 0.28, "entropy_coeff": 0, "use_kl_loss": False, "kl_loss_coef": 0.001,
            "kl_loss_type": "low_var_kl",
        },
        "rollout": {
            "n": 8, "temperature": 1.0, "top_p": 1, "top_k": -1, "calculate_log_probs": True, "seed": 42,
            "full_determinism": False, "multi_turn": {"enable": False}, "nnodes": 0,
            "checkpoint_engine": {"backend": "naive"},
            "agent": {"default_agent_loop": "single_turn_agent"},
        },
        "model": {"lora_rank": 0, "lora": {"rank": 0}},
    },
    "distillation": {"enabled": False},
    "reward": {"reward_model": {"enable": False, "enable_resource_pool": False}},
    "trainer": {"default_hdfs_dir": None},
}  # fmt: skip


def configured(section=None, **changes):
    """Return verl's configuration with changes by path, whose dots are two underscores, and a section of replay's."""
    config = copy.deepcopy(VERL) | ({} if section is None else {"exgrpo": section})
    for path, value in changes.items():
        *sections, name = path.split("__")
        inner = config
        for part in sections:
            inner = inner[part]
        assert name in inner
        inner[name] = value
    return config


def test_sizes_and_loss_are_verls_and_replay_is_the_papers_without_a_section():
    settings = read_settings(configured())
    algorithm = settings.algorithm
    assert (algorithm.batch_size, algorithm.mini_batch_size, algorithm.rollouts_per_question) == (128, 64, 8)
    assert (algorithm.max_prompt_tokens, algorithm.max_response_tokens) == (512, 1024)
    assert (algorithm.clip_epsilon, algorithm.clip_epsilon_high) == (0.2, 0.28)
    assert (algorithm.normalize_by_std, algorithm.kl_coefficient, algorithm.entropy_coefficient) == (True, 0.0, 0)
    assert algorithm.experience_ratio == ExGRPOConfig().experience_ratio
    assert (algorithm.seed, settings.seed, settings.max_failed_share) == (0, None, 0.0)
    penalized = read_settings(configured(actor_rollout_ref__actor__use_kl_loss=True))
    assert penalized.algorithm.kl_coefficient == 0.001


def test_the_section_sets_replays_fields_with_their_types():
    section = {"experience_ratio": 1, "start_pass_rate": None, "retired": "redraw", "max_failed_share": 0.1}
    settings = read_settings(configured(section))
    assert settings.algorithm.experience_ratio == 1.0
    assert settings.algorithm.start_pass_rate is None
    assert settings.algorithm.retired is RetiredRule.REDRAW
    assert settings.max_failed_share == 0.1


@pytest.mark.parametrize(
    ("mode", "divisor", "aggregation", "scale"),
    [
        ("seq-mean-token-sum-norm", None, LossAggregation.MAX_LENGTH, 1.0),
        ("seq-mean-token-sum-norm", 256, LossAggregation.MAX_LENGTH, 4.0),
        ("seq-mean-token-mean", 256, LossAggregation.TOKEN_MEAN, 1.0),
    ],
)
def test_a_divisor_of_verls_is_a_scale_of_the_loss(mode, divisor, aggregation, scale):
    config = configured(
        actor_rollout_ref__actor__loss_agg_mode=mode, actor_rollout_ref__actor__loss_scale_factor=divisor
    )
    algorithm = read_settings(config).algorithm
    assert (algorithm.loss_aggregation, algorithm.policy_loss_factor) == (aggregation, scale)


@pytest.mark.parametrize(
    ("section", "changes", "sentence"),
    [
        ({"experience_rato": 0.5}, {}, "exgrpo.experience_rato: there is no such setting; did you mean experience_ra"),
        ({"batch_size": 8}, {}, "exgrpo.batch_size: is decided by data.train_batch_size"),
        ({"mask_range": None}, {}, "exgrpo.mask_range: there is no such setting"),
        ({"experience_ratio": "half"}, {}, "exgrpo.experience_ratio: "),
        ({"refresh": "daily"}, {}, "exgrpo.refresh: expected never or "),
        ({"strategy_settings": 3}, {}, "exgrpo.strategy_settings: "),
        ({"experience_ratio": 1.5}, {}, "exgrpo.experience_ratio: "),
        ({"question_selection": "nearest"}, {}, "exgrpo.question_selection: "),
        ({"max_failed_share": 1}, {}, "exgrpo.max_failed_share: "),
        (None, {"actor_rollout_ref__actor__ppo_mini_batch_size": 50}, "actor_rollout_ref.actor.ppo_mini_batch_size: "),
        (None, {"actor_rollout_ref__actor__loss_agg_mode": "token-mean"}, "actor_rollout_ref.actor.loss_agg_mode: "),
        (None, {"algorithm__adv_estimator": "gae"}, "algorithm.adv_estimator: expected grpo"),
        (None, {"actor_rollout_ref__rollout__top_p": 0.9}, "actor_rollout_ref.rollout.top_p: expected 1 "),
        ({"rollouts_ahead": True}, {}, "actor_rollout_ref.rollout.nnodes: "),
        ({"rollouts_ahead": True}, {"actor_rollout_ref__rollout__nnodes": 1}, "rollout.checkpoint_engine.backend: "),
        (None, {"actor_rollout_ref__rollout__nnodes": 1}, "actor_rollout_ref.rollout.nnodes: expected 0 "),
        (
            {"rollouts_ahead": True},
            {
                "actor_rollout_ref__rollout__nnodes": 1,
                "actor_rollout_ref__rollout__checkpoint_engine": {"backend": "nccl"},
            },
            "exgrpo.sampler_correction: ",
        ),
        (None, {"reward__reward_model__enable": True}, "reward.reward_model.enable_resource_pool: expected True"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused_in_a_sentence_with_verls_name(section, changes, sentence):
    with pytest.raises(InputError) as refusal:
        read_settings(configured(section, **changes))
    assert sentence in str(refusal.value)


def test_all_mistakes_are_named_at_once():
    with pytest.raises(InputError) as refusal:
        read_settings(configured({"seed": 3}, algorithm__adv_estimator="gae", data__shuffle=False))
    assert len(str(refusal.value).splitlines()) == 3


def test_fields_that_verl_decides_are_fields():
    assert DECIDED.keys() | NOT_HERE <= set(ExGRPOConfig.__dataclass_fields__)
