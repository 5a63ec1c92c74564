"""From a specification to overrides of verl 0.9.1's configuration, in Hydra's KEY=VALUE form."""

import re
from collections.abc import Sequence
from pathlib import Path

from exgrpo.jobs.specs.base import numpy_seed
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo.jobs.specs.verl import ray_cpus
from exgrpo.jobs.training.pretrained.model_shapes import ModelShape, model_shape
from exgrpo_core.config import ExGRPOConfig, LossAggregation
from exgrpo_core.verl_plugin.settings import AGENT_NAME

VERL_FOLDER = "verl"
"""Folder of a run directory for verl's files."""
SETUP_MODULE = "exgrpo.jobs.training.engines.verl_ray.agent_loop"
REWARD_MODULE = "pkg://jobs.training.engines.verl_ray.reward"
REWARD_FUNCTION, SCORE_BY_MODEL = "compute_score", "score_by_model"

QUEUE_ROWS = 10**9
"""Rows that verl's queue may hold: no limit, since an evaluation has as many as questions times samples."""

WEIGHTS_BY = "nccl"
"""How weights reach GPUs that only generate."""

BUCKET_MIB, BUCKET_STEP_MIB = 2048, 256
"""verl's buffer for weights on their way to vLLM, and what a larger one is a multiple of."""

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
_BUCKET = f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes"
ENGINE_OVERRIDES = (
    f"{_MODEL}.external_lib={SETUP_MODULE}",
    f"{_ROLLOUT}.agent.default_agent_loop={AGENT_NAME}",
    f"{_ROLLOUT}.calculate_log_probs=True",
    f"transfer_queue.backend.SimpleStorage.total_storage_size={QUEUE_ROWS}",
    "trainer.v1.trainer_mode=sync",
)
"""The overrides that this engine always needs."""


def verl_overrides(spec: TrainSpec, run_path: Path, model_path: str | None = None) -> list[str]:
    """Return every setting of verl that the specification decides; the specification's overrides come last.

    `model_path` replaces `model.source` of models that are made on this machine.
    """
    settings = (
        _data_settings(spec)
        | _model_settings(spec, model_path or spec.model.source)
        | _adapter_settings(spec)
        | _actor_settings(spec)
        | _optimizer_settings(spec)
        | _rollout_settings(spec)
        | _ahead_settings(spec)
        | _bucket_settings(model_shape(model_path or spec.model.source, spec.model.revision))
        | _reward_settings(spec)
        | _trainer_settings(spec, run_path)
        | _local_ray_settings(spec)
        | ({"trainer.device": "cpu"} if spec.model.device == "cpu" else {})
    )
    return [*(f"{key}={render_value(value)}" for key, value in settings.items()), *spec.verl.overrides]


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


def _data_settings(spec: TrainSpec) -> dict[str, Value]:
    """Return the sizes; verl loads no data, since questions come from the algorithm."""
    config = spec.algorithm
    return {
        "data.train_files": spec.data.source,
        "data.val_files": spec.data.source,
        "data.train_batch_size": config.batch_size,
        "data.max_prompt_length": config.max_prompt_tokens,
        "data.max_response_length": config.max_response_tokens,
    }


def _model_settings(spec: TrainSpec, path: str) -> dict[str, Value]:
    return {
        f"{_MODEL}.path": path,
        f"+{_MODEL}.override_config.attn_implementation": attention_name(spec),
        # Log-probs and entropies come from the hidden states in chunks, so no tensor of all logits is made.
        f"{_MODEL}.use_fused_kernels": True,
        f"{_MODEL}.use_remove_padding": True,
        f"{_MODEL}.enable_gradient_checkpointing": True,
    }


def _adapter_settings(spec: TrainSpec) -> dict[str, Value]:
    lora = spec.model.lora
    if lora is None:
        return {}
    return {
        f"{_MODEL}.lora_rank": lora.rank,
        f"{_MODEL}.lora_alpha": lora.alpha,
        f"{_MODEL}.target_modules": lora.target_modules,
        # vLLM gets whole weights, and its loader knows no adapters.
        f"{_MODEL}.lora.merge": True,
        f"{_ACTOR}.fsdp_config.seed": numpy_seed(spec.seed),
    }


def attention_name(spec: TrainSpec) -> str:
    """Return the name of the attention in transformers; verl's default needs a package of which no wheel fits."""
    return "flash_attention_2" if spec.verl.attention == "flash" and spec.model.device != "cpu" else "sdpa"


def _actor_settings(spec: TrainSpec) -> dict[str, Value]:
    config, high = spec.algorithm, spec.algorithm.clip_epsilon_high
    return {
        f"{_ACTOR}.strategy": "fsdp2",
        f"{_ACTOR}.ppo_mini_batch_size": config.mini_batch_size,
        f"{_ACTOR}.ppo_epochs": 1,
        f"{_ACTOR}.shuffle": False,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": spec.tokens_per_gpu,
        f"{_ACTOR}.clip_ratio_low": config.clip_epsilon,
        f"{_ACTOR}.clip_ratio_high": config.clip_epsilon if high is None else high,
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
        f"{_ROLLOUT}.name": "vllm",
        f"{_ROLLOUT}.n": config.rollouts_per_question,
        f"{_ROLLOUT}.temperature": config.temperature,
        f"{_ROLLOUT}.top_p": 1,
        f"{_ROLLOUT}.top_k": -1,
        f"{_ROLLOUT}.seed": numpy_seed(spec.seed),
        f"{_ROLLOUT}.tensor_model_parallel_size": spec.verl.tensor_parallel,
        f"{_ROLLOUT}.gpu_memory_utilization": spec.verl.gpu_memory_utilization,
        f"{_ROLLOUT}.max_model_len": spec.sequence_tokens,
        f"{_ROLLOUT}.log_prob_use_dynamic_bsz": True,
        f"{_ROLLOUT}.log_prob_max_token_len_per_gpu": spec.tokens_per_gpu,
        f"{_ROLLOUT}.val_kwargs.temperature": validation.temperature,
        f"{_ROLLOUT}.val_kwargs.do_sample": validation.temperature > 0,
        f"{_ROLLOUT}.val_kwargs.n": validation.samples_per_question,
    }


def _ahead_settings(spec: TrainSpec) -> dict[str, Value]:
    if not spec.algorithm.rollouts_ahead:
        return {}
    return {
        f"{_ROLLOUT}.nnodes": spec.verl.num_nodes,
        f"{_ROLLOUT}.n_gpus_per_node": spec.generating_gpus_per_node,
        f"{_ROLLOUT}.checkpoint_engine.backend": WEIGHTS_BY,
    }


def _bucket_settings(shape: ModelShape | None) -> dict[str, Value]:
    """Return a buffer that holds the largest weight, for which verl would need memory that two processes share."""
    wanted = 0 if shape is None else -(-4 * shape.largest_weight // (BUCKET_STEP_MIB << 20)) * BUCKET_STEP_MIB
    return {_BUCKET: wanted} if wanted > BUCKET_MIB else {}


def _reward_settings(spec: TrainSpec) -> dict[str, Value]:
    function = "reward.custom_reward_function"
    if spec.reward_model is None:
        return {
            f"{function}.path": REWARD_MODULE,
            f"{function}.name": REWARD_FUNCTION,
            f"+{function}.reward_kwargs.requires_think_end": spec.data.requires_think_end,
            f"+{function}.reward_kwargs.reward_kind": spec.algorithm.reward_kind.value,
        }
    model, served = "reward.reward_model", "reward.reward_model.rollout"
    return {
        f"{function}.path": REWARD_MODULE,
        f"{function}.name": SCORE_BY_MODEL,
        f"+{function}.reward_kwargs.model": spec.reward_model.source,
        f"{model}.enable": True,
        f"{model}.model_path": spec.reward_model.source,
        # On the policy's GPUs verl would score after all rollouts, in a separate step of its trainer.
        f"{model}.enable_resource_pool": True,
        f"{model}.nnodes": 1,
        f"{model}.n_gpus_per_node": spec.reward_model.num_gpus,
        f"{served}.name": "vllm",
        f"{served}.tensor_model_parallel_size": 1,
        f"{served}.gpu_memory_utilization": spec.reward_model.gpu_memory_utilization,
        f"{served}.free_cache_engine": False,
        f"{served}.prompt_length": spec.sequence_tokens,
        f"{served}.response_length": 1,
    }


def _trainer_settings(spec: TrainSpec, run_path: Path) -> dict[str, Value]:
    """Return sizes and names; the training loop evaluates, saves and resumes, as with every engine."""
    return {
        "trainer.nnodes": spec.verl.num_nodes,
        "trainer.n_gpus_per_node": spec.verl.gpus_per_node,
        "trainer.total_training_steps": spec.num_steps,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": -1,
        "trainer.resume_mode": "disable",
        "trainer.default_local_dir": str(run_path / VERL_FOLDER),
        "trainer.project_name": "exgrpo",
        "trainer.experiment_name": run_path.name,
        "trainer.logger": ["console"],
    }


def _local_ray_settings(spec: TrainSpec) -> dict[str, Value]:
    """Return how many processors a Ray of this machine's own counts; a cluster's Ray counts its own."""
    if spec.verl.ray.address is not None:
        return {}
    return {"ray_kwargs.ray_init.num_cpus": ray_cpus(spec.gpus_of_a_machine)}


_FSDP_UNREAD = (
    "strategy", "forward_only", "turbo_config", "qat", "dtype", "use_orig_params", "wrap_policy.min_num_params",
)  # fmt: skip
"""Settings of verl's training engine that a role decides, or that are of FSDP's first version or other engines."""
READ = frozenset(
    {
        # Training: memory, speed and number formats.
        *(f"actor_rollout_ref.{role}.fsdp_config" for role in ("actor", "ref")),
        f"{_ACTOR}.optim",
        f"{_ACTOR}.ulysses_sequence_parallel_size",
        f"{_ACTOR}.pad_to_length",
        "actor_rollout_ref.ref.ulysses_sequence_parallel_size",
        "actor_rollout_ref.ref.pad_to_length",
        *(
            f"{_MODEL}.{name}"
            for name in (
                "use_shm", "override_config", "enable_gradient_checkpointing", "enable_activation_offload",
                "use_remove_padding", "use_liger", "use_fused_kernels", "fused_kernel_options",
            )
        ),
        # Generation: vLLM's memory and speed.
        *(
            f"{_ROLLOUT}.{name}"
            for name in (
                "dtype", "enforce_eager", "cudagraph_capture_sizes", "free_cache_engine", "enable_sleep_mode",
                "max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "enable_prefix_caching",
                "scheduling_policy", "load_format", "layered_summon", "disable_log_stats",
                "engine_kwargs.vllm", "full_determinism", "data_parallel_size", "expert_parallel_size",
                "agent.num_workers", "checkpoint_engine", "prometheus", "quantization", "quantization_config_file",
            )
        ),
        *(
            f"reward.reward_model.rollout.{name}"
            for name in (
                "dtype", "enforce_eager", "cudagraph_capture_sizes", "max_num_batched_tokens", "max_model_len",
                "max_num_seqs", "load_format", "engine_kwargs", "enable_chunked_prefill", "enable_prefix_caching",
                "disable_log_stats", "scheduling_policy", "quantization", "quantization_config_file",
            )
        ),
        _BUCKET,
        "reward.num_workers",
        # Processes, queue and loggers.
        "trainer.logger", "trainer.project_name", "trainer.experiment_name", "trainer.use_v1",
        "transfer_queue",
        "ray_kwargs.ray_init", "ray_kwargs.ray_init.num_cpus",
    }
)  # fmt: skip
"""Settings, and sections with all their settings, that an override may set: they take effect."""
UNREAD = frozenset(
    {
        *(f"actor_rollout_ref.{role}.fsdp_config.{name}" for role in ("actor", "ref") for name in _FSDP_UNREAD),
        *(
            f"{_ACTOR}.optim.{name}"
            for name in ("optimizer", "optimizer_impl", "lr_warmup_steps_ratio", "total_training_steps")
        ),
        "transfer_queue.enable",
    }
)
"""Settings of the sections of `READ` that have no effect."""
_FIELDS = {
    "trainer.nnodes": "verl.num_nodes",
    "trainer.n_gpus_per_node": "verl.gpus_per_node",
    "trainer.total_training_steps": "num_steps",
}


def check_overrides(overrides: Sequence[str], decided: Sequence[str]) -> None:
    """Refuse overrides of settings that a field of the specification decides, or that the engine does not read.

    Args:
        overrides: Those of the user.
        decided: Those that the specification gives without them.

    Raises:
        SpecError: One sentence, naming the first such setting.
    """
    fixed = [path for path in map(_path, decided) if ".".join(path) not in READ]
    for path in map(_path, overrides):
        name = ".".join(path)
        if any(_overlap(path, item) for item in fixed):
            field = _FIELDS.get(name, "a field of the specification")
            raise SpecError(f"{name} cannot be set: {field} decides it; set that instead.", "verl.overrides")
        if _is_unread(path):
            raise SpecError(
                f"{name} cannot be set: there is no such setting, or it has no effect here; check the name.",
                "verl.overrides",
            )


def _is_unread(path: Sequence[str]) -> bool:
    if any(_overlap(path, name.split(".")) for name in UNREAD):
        return True
    return not any(path[: name.count(".") + 1] == name.split(".") for name in READ)


def _path(override: str) -> list[str]:
    return override.partition("=")[0].strip().lstrip("+~").partition("@")[0].split(".")


def _overlap(path: Sequence[str], other: Sequence[str]) -> bool:
    return all(left == right for left, right in zip(path, other, strict=False))
