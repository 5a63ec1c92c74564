"""From a specification to overrides of verl 0.9.1's configuration, in Hydra's KEY=VALUE form."""

import difflib
import re
from collections.abc import Sequence
from pathlib import Path

from exgrpo_core.config import ExGRPOConfig, LossAggregation
from exgrpo_core.verl_plugin.settings import AGENT_NAME
from jobs.engines.verl_ray.override_table import INSTEAD, READ, find_unread
from jobs.specs.base import numpy_seed
from jobs.specs.train import SpecError, TrainSpec

VERL_FOLDER = "verl"
"""Folder of a run directory for verl's files."""
SETUP_MODULE = "jobs.engines.verl_ray.worker_setup"
REWARD_MODULE = "pkg://jobs.engines.verl_ray.reward"
REWARD_MODEL_MODULE = "pkg://jobs.engines.verl_ray.reward_model"
REWARD_FUNCTION = "compute_score"

SAMPLING_KEYS = frozenset(f"actor_rollout_ref.rollout.{name}" for name in ("top_p", "top_k", "seed"))
"""Sampling is by temperature alone, else stored log-probs are not those of the distribution that was sampled from."""
FIELD_OF_SETTING = {
    "data.train_files": "data.source",
    "data.val_files": "data.num_held_out",
    "data.train_batch_size": "algorithm.batch_size",
    "data.max_prompt_length": "algorithm.max_prompt_tokens",
    "data.max_response_length": "algorithm.max_response_tokens",
    "actor_rollout_ref.model.path": "model.source",
    "actor_rollout_ref.model.override_config.attn_implementation": "verl.attention",
    "actor_rollout_ref.model.lora_rank": "model.lora",
    "actor_rollout_ref.model.lora_alpha": "model.lora",
    "actor_rollout_ref.model.target_modules": "model.lora",
    "actor_rollout_ref.actor.strategy": "verl.strategy",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "algorithm.mini_batch_size",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu": "verl.max_tokens_per_gpu",
    "actor_rollout_ref.actor.clip_ratio": "algorithm.clip_epsilon",
    "actor_rollout_ref.actor.clip_ratio_low": "algorithm.clip_epsilon",
    "actor_rollout_ref.actor.clip_ratio_high": "algorithm.clip_epsilon_high",
    "actor_rollout_ref.actor.loss_agg_mode": "algorithm.loss_aggregation",
    "actor_rollout_ref.actor.loss_scale_factor": "algorithm.policy_loss_factor",
    "actor_rollout_ref.actor.entropy_coeff": "algorithm.entropy_coefficient",
    "actor_rollout_ref.actor.use_kl_loss": "algorithm.kl_coefficient",
    "actor_rollout_ref.actor.kl_loss_coef": "algorithm.kl_coefficient",
    "actor_rollout_ref.actor.optim.lr": "optim.learning_rate",
    "actor_rollout_ref.actor.optim.lr_warmup_steps": "optim.warmup_steps",
    "actor_rollout_ref.actor.optim.weight_decay": "optim.weight_decay",
    "actor_rollout_ref.actor.optim.betas": "optim.beta1",
    "actor_rollout_ref.actor.optim.clip_grad": "optim.max_gradient_norm",
    "actor_rollout_ref.actor.grad_clip": "optim.max_gradient_norm",
    "actor_rollout_ref.rollout.name": "verl.rollout",
    "actor_rollout_ref.rollout.n": "algorithm.rollouts_per_question",
    "actor_rollout_ref.rollout.temperature": "algorithm.temperature",
    "actor_rollout_ref.rollout.tensor_model_parallel_size": "verl.tensor_parallel",
    "actor_rollout_ref.rollout.gpu_memory_utilization": "verl.gpu_memory_utilization",
    "actor_rollout_ref.rollout.val_kwargs.temperature": "validation.temperature",
    "actor_rollout_ref.rollout.val_kwargs.n": "validation.samples_per_question",
    "algorithm.norm_adv_by_std_in_grpo": "algorithm.normalize_by_std",
    "reward.reward_model.model_path": "reward_model.source",
    "trainer.nnodes": "verl.num_nodes",
    "trainer.n_gpus_per_node": "verl.gpus_per_node",
    "trainer.total_training_steps": "num_steps",
    "trainer.total_epochs": "num_steps",
    "trainer.test_freq": "validation.interval",
    "trainer.save_freq": "checkpoint_interval",
    "trainer.max_actor_ckpt_to_keep": "num_checkpoints_kept",
    "trainer.device": "model.device",
    "reward.reward_model.n_gpus_per_node": "reward_model.num_gpus",
    "reward.reward_model.rollout.gpu_memory_utilization": "reward_model.gpu_memory_utilization",
}
"""Settings of verl that a field of the specification decides: overriding one would contradict what is recorded."""

QUEUE_ROWS = 10**9
"""Rows that verl's queue may hold: no limit, since an evaluation has as many as questions times samples."""

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
_REFERENCE = "actor_rollout_ref.ref"
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
        | _reward_settings(spec)
        | _trainer_settings(spec, run_path)
        | _local_ray_settings(spec)
        | (_cpu_settings(spec) if spec.model.device == "cpu" else {})
    )
    return [*(f"{key}={render_value(value)}" for key, value in settings.items()), *spec.verl.overrides]


def check_overrides(spec: TrainSpec) -> None:
    """Refuse overrides of settings that a field of the specification decides, or that this engine does not read.

    Raises:
        SpecError: One sentence each, naming what to set instead.
    """
    problems = []
    for path in map(setting_path, spec.verl.overrides):
        key = ".".join(path)
        fields = dict.fromkeys(value for name, value in FIELD_OF_SETTING.items() if overlap(path, name.split(".")))
        if fields:
            problems.append(f"{key}: is decided by {', '.join(fields)}; set that field instead.")
        elif any(overlap(path, name.split(".")) for name in SAMPLING_KEYS):
            problems.append(
                f"{key}: cannot be set, since importance ratios need rollouts that temperature alone shapes."
            )
        elif instead := find_unread(path):
            problems.append(f"{key}: has no effect here: {instead}.{_hint(path)}")
    if problems:
        raise SpecError(" ".join(problems))


def _hint(path: Sequence[str]) -> str:
    """Return a known setting that is spelt nearly as `path`, as a question, "" if there is none."""
    known = [name.split(".") for name in (*READ, *FIELD_OF_SETTING, *INSTEAD)]
    for depth, name in enumerate(path):
        beside = {other[depth] for other in known if len(other) > depth and other[:depth] == list(path[:depth])}
        if name not in beside:
            nearest = difflib.get_close_matches(name, beside, n=1, cutoff=0.85)
            return f" Did you mean {'.'.join([*path[:depth], *nearest, *path[depth + 1 :]])}?" if nearest else ""
    return ""


def setting_path(override: str) -> list[str]:
    """Return the path of names of the setting that an override sets."""
    return override.partition("=")[0].strip().lstrip("+~").partition("@")[0].split(".")


def overlap(path: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two paths are the same setting, or one is a section with the other."""
    return all(left == right for left, right in zip(path, other, strict=False))


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
        f"{_ACTOR}.strategy": spec.verl.strategy,
        f"{_ACTOR}.grad_clip": spec.optim.max_gradient_norm,
        f"{_ACTOR}.ppo_mini_batch_size": config.mini_batch_size,
        f"{_ACTOR}.ppo_epochs": 1,
        f"{_ACTOR}.shuffle": False,
        f"{_ACTOR}.use_dynamic_bsz": True,
        f"{_ACTOR}.ppo_max_token_len_per_gpu": spec.tokens_per_gpu,
        f"{_ACTOR}.clip_ratio": config.clip_epsilon,
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
        f"{_ROLLOUT}.name": spec.verl.rollout,
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
        f"{function}.path": REWARD_MODEL_MODULE,
        f"{function}.name": REWARD_FUNCTION,
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


def _cpu_settings(spec: TrainSpec) -> dict[str, Value]:
    """Return the settings of verl without a GPU: float32, gloo, eager code, and GPUs that Ray only counts."""
    settings: dict[str, Value] = {
        "trainer.device": "cpu",
        f"{_ACTOR}.use_torch_compile": False,
        f"{_ACTOR}.fsdp_config.use_torch_compile": False,
        f"{_ACTOR}.fsdp_config.dtype": "float32",
        f"+{_ACTOR}.fsdp_config.mixed_precision.param_dtype": "fp32",
        f"+{_ACTOR}.fsdp_config.mixed_precision.reduce_dtype": "fp32",
        f"{_REFERENCE}.fsdp_config.model_dtype": "fp32",
        f"{_REFERENCE}.fsdp_config.dtype": "float32",
        f"+{_REFERENCE}.fsdp_config.mixed_precision.param_dtype": "fp32",
        f"+{_REFERENCE}.fsdp_config.mixed_precision.reduce_dtype": "fp32",
        f"{_ROLLOUT}.dtype": "float32",
        f"{_ROLLOUT}.enforce_eager": True,
        f"{_ROLLOUT}.free_cache_engine": False,
        f"+{_ROLLOUT}.enable_sleep_mode": False,
        f"{_ROLLOUT}.load_format": "auto",
        f"{_ROLLOUT}.agent.num_workers": 1,
        f"{_ROLLOUT}.checkpoint_engine.update_weights_bucket_megabytes": 64,
        "reward.num_workers": 1,
        "transfer_queue.backend.SimpleStorage.num_data_storage_units": 1,
    }
    if spec.verl.ray.address is None:
        settings |= {
            "+ray_kwargs.ray_init.num_gpus": spec.verl.gpus_per_node,
            "+ray_kwargs.ray_init.include_dashboard": False,
        }
    return settings


def _local_ray_settings(spec: TrainSpec) -> dict[str, Value]:
    """Return how many processors a Ray of this machine's own counts; a cluster's Ray counts its own.

    Ray starts no process for which no processor is left, and says nothing: verl's queue asks for up to 9, its loops
    and graders for up to 16, each GPU's processes for 3. All of them share the processors that there are.
    """
    if spec.verl.ray.address is not None:
        return {}
    num_gpus = spec.verl.gpus_per_node + (spec.reward_model.num_gpus if spec.reward_model else 0)
    return {"ray_kwargs.ray_init.num_cpus": 32 + 4 * num_gpus}
