import re
from pathlib import Path

import pytest

from exgrpo.jobs.actions.preflight.machine_fit import check_run_overrides
from exgrpo.jobs.specs.any_job import local_gpus
from exgrpo.jobs.specs.train import SpecError, TrainSpec, load_preset, parse_spec
from exgrpo.jobs.training.engines.verl_ray.overrides_from_spec import render_value, verl_overrides

pytestmark = pytest.mark.slow

RUN = Path("/runs/20260101-a run")


def verl_spec(**content) -> TrainSpec:
    return parse_spec({"engine": "verl"} | content, "test")


def settings(spec: TrainSpec) -> dict[str, str]:
    return dict(word.split("=", 1) for word in verl_overrides(spec, RUN))


EVERY_FIELD = {
    "seed": 9, "num_steps": 11, "data": {"source": "train.parquet"}, "model": {"source": "a/b"},
    "algorithm": {
        "batch_size": 12, "mini_batch_size": 6, "rollouts_per_question": 5, "max_prompt_tokens": 100,
        "max_response_tokens": 300, "temperature": 0.7, "fresh_objective": "clip", "clip_epsilon": 0.1,
        "clip_epsilon_high": 0.3, "loss_aggregation": "token_mean", "normalize_by_std": True,
        "entropy_coefficient": 0.002, "kl_coefficient": 0.003,
    },
    "optim": {
        "learning_rate": 2e-6, "warmup_steps": 7, "weight_decay": 0.02, "beta1": 0.8, "beta2": 0.95,
        "max_gradient_norm": 0.5,
    },
    "validation": {"temperature": 0.4, "samples_per_question": 3},
    "verl": {
        "num_nodes": 2, "gpus_per_node": 4, "tensor_parallel": 2, "gpu_memory_utilization": 0.55,
        "max_tokens_per_gpu": 900, "attention": "sdpa",
    },
}  # fmt: skip
"""Each with another value than its default, and than the others."""
ACTOR, ROLLOUT = "actor_rollout_ref.actor", "actor_rollout_ref.rollout"
REACHES = {
    "data.train_files": "train.parquet", "data.train_batch_size": "12", "data.max_prompt_length": "100",
    "data.max_response_length": "300", "actor_rollout_ref.model.path": "a/b",
    "+actor_rollout_ref.model.override_config.attn_implementation": "sdpa",
    f"{ACTOR}.ppo_mini_batch_size": "6", f"{ACTOR}.ppo_max_token_len_per_gpu": "900", f"{ACTOR}.clip_ratio_low": "0.1",
    f"{ACTOR}.clip_ratio_high": "0.3", f"{ACTOR}.loss_agg_mode": "seq-mean-token-mean",
    f"{ACTOR}.loss_scale_factor": "null", f"{ACTOR}.entropy_coeff": "0.002", f"{ACTOR}.use_kl_loss": "True",
    f"{ACTOR}.kl_loss_coef": "0.003", "algorithm.norm_adv_by_std_in_grpo": "True", f"{ACTOR}.optim.lr": "2e-06",
    f"{ACTOR}.optim.lr_warmup_steps": "7", f"{ACTOR}.optim.weight_decay": "0.02", f"{ACTOR}.optim.betas": "[0.8,0.95]",
    f"{ACTOR}.optim.clip_grad": "0.5", f"{ROLLOUT}.n": "5", f"{ROLLOUT}.temperature": "0.7", f"{ROLLOUT}.seed": "9",
    f"{ROLLOUT}.tensor_model_parallel_size": "2", f"{ROLLOUT}.gpu_memory_utilization": "0.55",
    f"{ROLLOUT}.max_model_len": "400", f"{ROLLOUT}.log_prob_max_token_len_per_gpu": "900",
    f"{ROLLOUT}.val_kwargs.temperature": "0.4", f"{ROLLOUT}.val_kwargs.n": "3", "trainer.nnodes": "2",
    "trainer.n_gpus_per_node": "4", "trainer.total_training_steps": "11",
}  # fmt: skip


def test_every_field_reaches_verl_with_its_value():
    values = settings(verl_spec(**EVERY_FIELD))
    assert {name: values[name] for name in REACHES} == REACHES


def test_the_papers_loss_reaches_verl():
    values = settings(verl_spec())
    assert values[f"{ACTOR}.loss_agg_mode"] == "seq-mean-token-sum-norm"
    assert values[f"{ACTOR}.loss_scale_factor"] == values["data.max_response_length"] == "8192"
    assert values[f"{ACTOR}.clip_ratio_high"] == values[f"{ACTOR}.clip_ratio_low"] == "0.2"
    assert values["algorithm.norm_adv_by_std_in_grpo"] == "False"


def test_adapters_reach_verl_and_servers_get_them_merged():
    lora = {"rank": 4, "alpha": 8, "target_modules": ["q_proj", "down_proj"]}
    values = settings(verl_spec(model={"source": "a/b", "lora": lora}, seed=2**40 + 3))
    model = "actor_rollout_ref.model"
    assert (values[f"{model}.lora_rank"], values[f"{model}.lora_alpha"]) == ("4", "8")
    assert values[f"{model}.target_modules"] == "[q_proj,down_proj]"
    assert values[f"{model}.lora.merge"] == "True"
    # A seed beyond those of numpy is made smaller.
    assert values["actor_rollout_ref.rollout.seed"] == values["actor_rollout_ref.actor.fsdp_config.seed"] == "3"
    assert not [name for name in settings(verl_spec()) if "lora" in name]


def test_answers_are_graded_by_this_project_and_never_by_verls_math_graders():
    values = settings(verl_spec(data={"requires_think_end": True}))
    assert values["+reward.custom_reward_function.reward_kwargs.requires_think_end"] == "True"
    assert values["+reward.custom_reward_function.reward_kwargs.reward_kind"] == "binary"
    assert values["reward.custom_reward_function.path"] == "'pkg://jobs.training.engines.verl_ray.reward'"


def test_continuous_rewards_come_from_a_reward_model_on_gpus_of_its_own():
    content = load_preset("paper-wildchat-if")
    values = settings(content)
    assert values["reward.reward_model.model_path"] == "Skywork/Skywork-Reward-Llama-3.1-8B-v0.2"
    assert values["reward.custom_reward_function.name"] == "score_by_model"
    assert values["reward.reward_model.enable_resource_pool"] == "True"
    assert (values["trainer.n_gpus_per_node"], values["reward.reward_model.n_gpus_per_node"]) == ("7", "1")


def test_rollouts_ahead_are_generated_on_as_many_more_gpus():
    ahead = {"rollouts_ahead": True, "sampler_correction": "truncate"}
    spec = verl_spec(verl={"num_nodes": 2, "gpus_per_node": 4}, algorithm=ahead)
    values = settings(spec)
    assert [values[f"actor_rollout_ref.rollout.{name}"] for name in ("nnodes", "n_gpus_per_node")] == ["2", "4"]
    assert values["actor_rollout_ref.rollout.checkpoint_engine.backend"] == "nccl"
    assert (spec.num_gpus, spec.gpus_of_a_machine, local_gpus(spec)) == (16, 8, 8)
    assert "actor_rollout_ref.rollout.nnodes" not in settings(verl_spec())


ROOT = "actor_rollout_ref"


@pytest.mark.parametrize(
    "word",
    [
        "trainer.save_freq=3", "trainer.save_freq.x=3", "trainer={}", f"+{ROOT}.rollout.n=4", f"{ROOT}.rollout={{n:4}}",
        f"{ROOT}.model.override_config={{attn_implementation:sdpa}}", f"{ROOT}.actor.fsdp_config={{strategy:fsdp}}",
        f"{ROOT}.actor.fsdp_config.wrap_policy.min_num_params=9", f"{ROOT}.model.tiled_mlp.enabled=True",
        f"+{ROOT}.rollout.multi_turn.enable=True", "data.shuffle=False", "trainer.loger=[console]",
    ],
)  # fmt: skip
def test_override_of_what_a_field_decides_or_without_effect_is_refused(word):
    with pytest.raises(SpecError, match=f"verl.overrides: {re.escape(word.partition('=')[0].lstrip('+'))} "):
        check_run_overrides(verl_spec(verl={"overrides": [word]}))


@pytest.mark.parametrize(
    "word",
    [
        f"{ROOT}.actor.fsdp_config.optimizer_offload=True",
        f"+{ROOT}.actor.fsdp_config.mixed_precision.param_dtype=fp32",
        f"+{ROOT}.rollout.engine_kwargs.vllm.kv_cache_dtype=fp8", f"{ROOT}.actor.optim.lr_scheduler_type=cosine",
        "+ray_kwargs.ray_init.num_gpus=4", "trainer.logger=[console,wandb]",
    ],
)  # fmt: skip
def test_override_that_the_engine_reads_is_let_through(word):
    check_run_overrides(verl_spec(verl={"overrides": [word]}))


def test_a_cluster_of_its_own_keeps_its_resources():
    cluster = {"ray": {"address": "http://127.0.0.1:8265"}}
    values = settings(verl_spec(model={"device": "cpu"}, verl=cluster))
    assert not [key for key in values if "ray_init" in key]


@pytest.mark.parametrize(
    ("value", "rendered"),
    [
        (None, "null"), (True, "True"), (1e-6, "1e-06"), ("plain/path-1.parquet", "plain/path-1.parquet"),
        ("with space", "'with space'"), ("it's", r"'it\'s'"), ("null", "'null'"), ("8b", "'8b'"),
        ([0.9, 0.99], "[0.9,0.99]"), (["a b", "c"], "['a b',c]"),
    ],
)  # fmt: skip
def test_values_are_written_in_hydras_grammar(value, rendered):
    assert render_value(value) == rendered


BUCKET = "actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes"


@pytest.mark.parametrize(
    ("model", "bucket"), [("Qwen/Qwen2.5-Math-7B", "2304"), ("Qwen/Qwen2.5-Math-1.5B", None), ("no/where", None)]
)
def test_the_bucket_holds_the_models_largest_weight(model, bucket):
    assert settings(verl_spec(model={"source": model})).get(BUCKET) == bucket


def test_a_bucket_of_ones_own_comes_last():
    spec = verl_spec(model={"source": "Qwen/Qwen2.5-Math-7B"}, verl={"overrides": [f"{BUCKET}=4096"]})
    check_run_overrides(spec)
    assert settings(spec)[BUCKET] == "4096"
