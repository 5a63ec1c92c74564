"""Which settings of verl an override may set: what no field of the specification decides and this engine reads."""

import difflib
from collections.abc import Sequence

from jobs.specs.train import SpecError, TrainSpec

ROOT = "actor_rollout_ref"
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
"""Settings of verl that a field of the specification decides."""
READ = frozenset(
    {
        # Training: memory, speed and number formats.
        *(f"{ROOT}.{role}.fsdp_config" for role in ("actor", "ref")),
        f"{ROOT}.actor.optim",
        f"{ROOT}.actor.ulysses_sequence_parallel_size",
        f"{ROOT}.actor.pad_to_length",
        f"{ROOT}.actor.use_torch_compile",
        f"{ROOT}.ref.ulysses_sequence_parallel_size",
        f"{ROOT}.ref.use_torch_compile",
        f"{ROOT}.ref.pad_to_length",
        *(
            f"{ROOT}.model.{name}"
            for name in (
                "use_shm", "override_config", "enable_gradient_checkpointing", "enable_activation_offload",
                "use_remove_padding", "use_liger", "use_fused_kernels", "fused_kernel_options",
            )
        ),
        # Generation: vLLM's memory and speed.
        *(
            f"{ROOT}.rollout.{name}"
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
        "reward.num_workers",
        # Processes, queue and loggers.
        "trainer.logger", "trainer.project_name", "trainer.experiment_name",
        "transfer_queue",
        "ray_kwargs.ray_init",
    }
)  # fmt: skip
"""Settings, and sections with all their settings, that take effect."""
UNREAD = frozenset(
    {
        *(
            f"{ROOT}.{role}.fsdp_config.{name}"
            for role in ("actor", "ref")
            for name in ("strategy", "forward_only", "turbo_config", "qat")
        ),
        *(
            f"{ROOT}.actor.optim.{name}"
            for name in ("optimizer", "optimizer_impl", "lr_warmup_steps_ratio", "total_training_steps")
        ),
        "transfer_queue.enable",
    }
)
"""Settings of the sections of `READ` that have no effect."""


def check_overrides(spec: TrainSpec) -> None:
    """Refuse overrides of settings that a field of the specification decides, or that this engine does not read.

    Raises:
        SpecError: One sentence each.
    """
    if problems := [problem for item in spec.verl.overrides if (problem := _find_problem(setting_path(item)))]:
        raise SpecError(" ".join(problems), "verl.overrides")


def _find_problem(path: Sequence[str]) -> str:
    key = ".".join(path)
    if fields := dict.fromkeys(field for name, field in FIELD_OF_SETTING.items() if overlap(path, name.split("."))):
        return f"{key}: is decided by {', '.join(fields)}; set that field instead."
    is_read = any(path[: name.count(".") + 1] == name.split(".") for name in READ)
    if is_read and not any(overlap(path, name.split(".")) for name in UNREAD):
        return ""
    nearest = difflib.get_close_matches(key, [*READ, *FIELD_OF_SETTING], n=1, cutoff=0.9)
    hint = f" Did you mean {nearest[0]}?" if nearest else ""
    return f"{key}: has no effect here; set the fields of the specification instead.{hint}"


def setting_path(override: str) -> list[str]:
    """Return the path of names of the setting that an override sets."""
    return override.partition("=")[0].strip().lstrip("+~").partition("@")[0].split(".")


def overlap(path: Sequence[str], other: Sequence[str]) -> bool:
    """Whether two paths are the same setting, or one is a section with the other."""
    return all(left == right for left, right in zip(path, other, strict=False))
