"""From a specification to the settings of verl 0.9.1's own configuration, as Hydra's KEY=VALUE words."""

import re
from collections.abc import Sequence
from pathlib import Path

from exgrpo_core.config import ExGRPOConfig, LossAggregation
from jobs.specs import TrainSpec

VERL_FOLDER = "verl"
"""Folder of a run directory for what verl itself reads and writes."""
REWARD_MODULE = "pkg://jobs.engines.verl_ray.reward"
REWARD_FUNCTION = "compute_score"

Value = str | int | float | bool | None | Sequence[str | float]

_PLAIN = re.compile(r"[A-Za-z_./][\w./-]*")
_KEYWORDS = frozenset({"true", "false", "null", "none", "nan", "inf"})
_AGGREGATIONS = {
    LossAggregation.MAX_LENGTH: "seq-mean-token-sum-norm",
    LossAggregation.TOKEN_MEAN: "seq-mean-token-mean",
}
_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"


def training_file(run_path: Path) -> Path:
    """Return where the questions to train on stand, in verl's schema."""
    return run_path / VERL_FOLDER / "training.parquet"


def held_out_file(run_path: Path) -> Path:
    """Return where the held-out questions stand, in verl's schema."""
    return run_path / VERL_FOLDER / "held-out.parquet"


def checkpoints_folder(run_path: Path) -> Path:
    """Return where verl keeps its checkpoints, `global_step_N`."""
    return run_path / VERL_FOLDER / "checkpoints"


def verl_overrides(spec: TrainSpec, run_path: Path, model_path: str | None = None) -> list[str]:
    """Return every setting of verl that the specification decides; the specification's own overrides come last.

    `model_path` stands in for models that are made on this machine.
    """
    settings = (
        _data_settings(spec, run_path)
        | _model_settings(spec, model_path or spec.model.source)
        | _actor_settings(spec)
        | _optimizer_settings(spec)
        | _rollout_settings(spec)
        | _reward_settings(spec)
        | _trainer_settings(spec, run_path)
        | (_cpu_settings(spec) if spec.model.device == "cpu" else {})
    )
    engine = ["model_engine=megatron"] if spec.verl.strategy == "megatron" else []
    return [*engine, *(f"{key}={render_value(value)}" for key, value in settings.items()), *spec.verl.overrides]


def render_value(value: Value) -> str:
    """Return a value in Hydra's grammar; text is quoted wherever Hydra would read it as something else."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, str):
        return _render_text(value)
    if isinstance(value, Sequence):
        return f"[{','.join(render_value(item) for item in value)}]"
    return repr(value)


def _render_text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _KEYWORDS:
        return text
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _data_settings(spec: TrainSpec, run_path: Path) -> dict[str, Value]:
    config = spec.algorithm
    return {
        "data.train_files": str(training_file(run_path)),
        "data.val_files": str(held_out_file(run_path) if spec.data.num_held_out else training_file(run_path)),
        "data.train_batch_size": config.batch_size,
        "data.gen_batch_size": 1,
        "data.max_prompt_length": config.max_prompt_tokens,
        "data.max_response_length": config.max_response_tokens,
        "data.shuffle": False,
        "data.seed": spec.seed,
        "data.truncation": "error",
        "data.dataloader_num_workers": 0,
    }


def _model_settings(spec: TrainSpec, path: str) -> dict[str, Value]:
    return {
        f"{_MODEL}.path": path,
        f"{_MODEL}.use_remove_padding": spec.model.device != "cpu",
        f"{_MODEL}.enable_gradient_checkpointing": spec.model.device != "cpu",
    }


def _actor_settings(spec: TrainSpec) -> dict[str, Value]:
    config = spec.algorithm
    settings: dict[str, Value] = {
        f"{_ACTOR}.ppo_mini_batch_size": config.mini_batch_size,
        f"{_ACTOR}.ppo_epochs": 1,
        f"{_ACTOR}.shuffle": False,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": spec.tokens_per_gpu,
        f"{_ACTOR}.clip_ratio": config.clip_epsilon,
        f"{_ACTOR}.clip_ratio_low": config.clip_epsilon,
        f"{_ACTOR}.clip_ratio_high": config.clip_epsilon,
        f"{_ACTOR}.loss_agg_mode": _AGGREGATIONS[config.loss_aggregation],
        f"{_ACTOR}.loss_scale_factor": _loss_divisor(config),
        f"{_ACTOR}.entropy_coeff": config.entropy_coefficient,
        f"{_ACTOR}.use_kl_loss": config.kl_coefficient > 0,
        f"{_ACTOR}.kl_loss_coef": config.kl_coefficient,
        f"{_ACTOR}.kl_loss_type": "low_var_kl",
        "algorithm.adv_estimator": "grpo",
        "algorithm.norm_adv_by_std_in_grpo": config.normalize_by_std,
        "algorithm.use_kl_in_reward": False,
        "critic.enable": False,
    }
    if spec.verl.strategy == "megatron":
        return settings | {f"{_ACTOR}.megatron.tensor_model_parallel_size": spec.verl.tensor_parallel}
    return settings | {f"{_ACTOR}.strategy": "fsdp2", f"{_ACTOR}.grad_clip": spec.optim.max_gradient_norm}


def _loss_divisor(config: ExGRPOConfig) -> Value:
    """Return what verl divides a trajectory's sum of token terms by; it knows whole numbers only."""
    if config.loss_aggregation is LossAggregation.TOKEN_MEAN:
        return None
    return config.max_response_tokens


def _optimizer_settings(spec: TrainSpec) -> dict[str, Value]:
    optim = spec.optim
    return {
        f"{_ACTOR}.optim.lr": optim.learning_rate,
        f"{_ACTOR}.optim.lr_warmup_steps": optim.warmup_steps,
        f"{_ACTOR}.optim.weight_decay": optim.weight_decay,
        f"{_ACTOR}.optim.betas": [optim.beta1, optim.beta2],
        f"{_ACTOR}.optim.clip_grad": optim.max_gradient_norm,
    }


def _rollout_settings(spec: TrainSpec) -> dict[str, Value]:
    config, validation = spec.algorithm, spec.validation
    return {
        f"{_ROLLOUT}.name": spec.verl.rollout,
        f"{_ROLLOUT}.n": config.rollouts_per_question,
        f"{_ROLLOUT}.temperature": config.temperature,
        f"{_ROLLOUT}.top_p": 1,
        f"{_ROLLOUT}.top_k": -1,
        f"{_ROLLOUT}.seed": spec.seed,
        f"{_ROLLOUT}.tensor_model_parallel_size": spec.verl.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": spec.verl.gpu_memory_utilization,
        f"{_ROLLOUT}.max_model_len": spec.sequence_tokens,
        f"{_ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": spec.tokens_per_gpu,
        f"{_ROLLOUT}.val_kwargs.temperature": validation.temperature,
        f"{_ROLLOUT}.val_kwargs.do_sample": validation.temperature > 0,
        f"{_ROLLOUT}.val_kwargs.n": validation.samples_per_question,
    }


def _reward_settings(spec: TrainSpec) -> dict[str, Value]:
    if spec.reward_model is None:
        return {
            "reward.custom_reward_function.path": REWARD_MODULE,
            "reward.custom_reward_function.name": REWARD_FUNCTION,
            "+reward.custom_reward_function.reward_kwargs.requires_think_end": spec.data.requires_think_end,
        }
    return {
        "reward.reward_model.enable": True,
        "reward.reward_model.model_path": spec.reward_model.source,
        "reward.reward_model.rollout.name": "vllm",
        "reward.reward_model.rollout.tensor_model_parallel_size": 1,
        "reward.reward_model.rollout.gpu_memory_utilization": spec.reward_model.gpu_memory_utilization,
        "reward.reward_model.rollout.prompt_length": spec.sequence_tokens,
        "reward.reward_model.rollout.response_length": 1,
    }


def _trainer_settings(spec: TrainSpec, run_path: Path) -> dict[str, Value]:
    has_held_out = spec.data.num_held_out > 0
    return {
        "trainer.nnodes": spec.verl.num_nodes,
        "trainer.n_gpus_per_node": spec.verl.gpus_per_node,
        "trainer.total_training_steps": spec.num_steps,
        "trainer.total_epochs": spec.num_steps,
        "trainer.val_before_train": has_held_out,
        "trainer.test_freq": spec.validation.interval if has_held_out and spec.validation.interval else -1,
        "trainer.save_freq": spec.checkpoint_interval,
        "trainer.max_actor_ckpt_to_keep": spec.num_checkpoints_kept,
        "trainer.default_local_dir": str(checkpoints_folder(run_path)),
        "trainer.resume_mode": "auto",
        "trainer.project_name": "exgrpo",
        "trainer.experiment_name": run_path.name,
        "trainer.logger": ["console"],
    }


def _cpu_settings(spec: TrainSpec) -> dict[str, Value]:
    """Return what makes verl run without a GPU: float32, gloo, eager code, and GPUs that Ray only counts."""
    settings: dict[str, Value] = {
        "trainer.device": "cpu",
        f"+{_MODEL}.override_config.attn_implementation": "sdpa",
        f"{_ACTOR}.use_torch_compile": False,
        f"{_ACTOR}.fsdp_config.use_torch_compile": False,
        f"{_ACTOR}.fsdp_config.dtype": "float32",
        f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype": "fp32",
        f"+{_ACTOR}.fsdp_config.mixed_precision.reduce_dtype": "fp32",
        f"{_ROLLOUT}.dtype": "float32",
        f"{_ROLLOUT}.enforce_eager": True,
        f"{_ROLLOUT}.free_cache_engine": False,
        f"{_ROLLOUT}.load_format": "auto",
        f"{_ROLLOUT}.agent.num_workers": 1,
        f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 64,
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    if spec.verl.ray.address is None:
        settings |= {
            "ray_kwargs.ray_init.num_cpus": 8 + 4 * spec.verl.gpus_per_node,
            "+ray_kwargs.ray_init.num_gpus": spec.verl.gpus_per_node,
            "+ray_kwargs.ray_init.include_dashboard": False,
        }
    return settings
