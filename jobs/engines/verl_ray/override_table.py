"""Which settings of verl this engine reads, and what to use in place of each other one.

A setting belongs to the longest entry that it lies under. `READ` is the allow-list; what neither table names is refused
by verl's own check, since verl has no such setting.
"""

from collections.abc import Sequence

ROOT = "actor_rollout_ref"
_ALGORITHM = "the algorithm is this project's; set the fields of algorithm"
_DATA = "verl loads no data here; set the fields of data, and algorithm.seed for the order of questions"
_ACTOR_LOSS = "the loss is this project's; set algorithm.clip_epsilon, algorithm.loss_aggregation and the like"
_BATCHES = "micro-batches are cut by tokens; set verl.max_tokens_per_gpu"
_SAMPLING = "importance ratios need rollouts that temperature alone shapes; set algorithm.temperature"
_ONE_TURN = "a rollout is one request of prompt tokens, graded by this project"
_LORA = "adapters start anew in the projections of model.lora; set its fields"
_PROFILE = "this engine starts no profile of verl; the step's seconds are on the run's page"
_GRADERS = "rewards are graded by this project; set data.answer_kind, or reward_model for a model's scores"
_TRAINER = "this project's loop trains, evaluates, records and saves; set num_steps, validation or checkpoint_interval"
_CHECKPOINT = "a checkpoint holds all that a resume needs; set checkpoint_interval and num_checkpoints_kept"
_SHARDS = "training is FSDP2 on all GPUs alike; set actor_rollout_ref.actor.fsdp_config"
_SERVERS = "servers run on the GPUs that train; set verl.num_nodes, verl.gpus_per_node and verl.tensor_parallel"

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
        f"{ROOT}.nccl_timeout",
        *(
            f"{ROOT}.model.{name}"
            for name in (
                "use_shm", "override_config", "enable_gradient_checkpointing", "enable_activation_offload",
                "use_remove_padding", "use_liger", "use_fused_kernels", "fused_kernel_options", "tiled_mlp",
            )
        ),
        # Generation: vLLM's memory and speed.
        *(
            f"{ROOT}.rollout.{name}"
            for name in (
                "dtype", "enforce_eager", "cudagraph_capture_sizes", "free_cache_engine", "enable_sleep_mode",
                "max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "enable_prefix_caching",
                "scheduling_policy", "load_format", "layered_summon", "disable_log_stats", "multi_stage_wake_up",
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
        "trainer.logger", "trainer.project_name", "trainer.experiment_name", "trainer.ray_wait_register_center_timeout",
        "transfer_queue",
        "ray_kwargs.ray_init",
    }
)  # fmt: skip
"""Settings, and sections with all their settings, that take effect."""

INSTEAD: dict[str, str] = {
    "algorithm": _ALGORITHM,
    "algorithm.rollout_correction": "set algorithm.sampler_correction and algorithm.sampler_ratio_limit",
    "critic": "this engine has no critic",
    "data": _DATA,
    "distillation": "this engine distils nothing",
    "global_profiler": _PROFILE,
    "skip": "rollouts are never skipped or read from a dump",
    "model_engine": _SHARDS,
    "custom_reward_function": _GRADERS,
    "reward_model": "verl's former name; set reward_model of the specification",
    "reward": _GRADERS,
    "sandbox_fusion": _GRADERS,
    "transfer_queue.enable": "rows always go through the queue",
    "ray_kwargs": "Ray is this engine's to start; set actor_rollout_ref.nccl_timeout, ray_kwargs.ray_init or verl.ray",
    "trainer": _TRAINER,
    ROOT: _SERVERS,
    f"{ROOT}.model": "the model is model.source, with its own configuration, tokenizer and chat template",
    f"{ROOT}.model.mtp": "prediction of several tokens is not supported",
    **dict.fromkeys(
        [
            f"{ROOT}.model.{name}"
            for name in ("lora", "exclude_modules", "lora_adapter_path")
        ],
        _LORA,
    ),
    f"{ROOT}.actor": _ACTOR_LOSS,
    f"{ROOT}.actor.profiler": _PROFILE,
    **dict.fromkeys(
        [
            f"{ROOT}.actor.{name}"
            for name in ("use_dynamic_bsz", "ppo_micro_batch_size", "ppo_micro_batch_size_per_gpu", "shuffle")
        ],
        _BATCHES,
    ),
    f"{ROOT}.actor.ppo_epochs": "each mini-batch is one optimizer step, as in the paper",
    f"{ROOT}.actor.checkpoint": _CHECKPOINT,
    f"{ROOT}.actor.qat": "training with quantised weights is not supported",
    **dict.fromkeys(
        [
            f"{ROOT}.actor.{name}"
            for name in ("entropy_from_logits_with_chunking", "entropy_from_logits_chunk_size", "entropy_checkpointing")
        ],
        "set it in actor_rollout_ref.actor.fsdp_config, without use_fused_kernels",
    ),
    **dict.fromkeys([f"{ROOT}.actor.{name}" for name in ("use_fused_kernels", "use_remove_padding")],
                    "set it in actor_rollout_ref.model"),
    **dict.fromkeys(
        [f"{ROOT}.actor.optim.{name}" for name in ("optimizer", "optimizer_impl")], "AdamW is the optimizer; set optim"
    ),
    f"{ROOT}.actor.optim.lr_warmup_steps_ratio": "set optim.warmup_steps",
    f"{ROOT}.actor.optim.total_training_steps": "set num_steps",
    **{
        f"{ROOT}.{role}.fsdp_config.{name}": reason
        for role in ("actor", "ref")
        for name, reason in {
            "strategy": _SHARDS,
            "forward_only": _SHARDS,
            "turbo_config": _SHARDS,
            "qat": "training with quantised weights is not supported",
        }.items()
    },
    f"{ROOT}.ref": "the reference model is scored as the policy is; set algorithm.kl_coefficient",
    f"{ROOT}.ref.profiler": _PROFILE,
    f"{ROOT}.rollout": _SERVERS,
    **dict.fromkeys(
        [
            f"{ROOT}.rollout.{name}"
            for name in ("do_sample", "ignore_eos", "logprobs_mode", "calculate_log_probs", "over_sample_rate", "mtp")
        ],
        _SAMPLING,
    ),
    **dict.fromkeys([f"{ROOT}.rollout.{name}" for name in ("multi_turn", "agent", "trace")], _ONE_TURN),
    **dict.fromkeys(
        [f"{ROOT}.rollout.{name}" for name in ("prompt_length", "response_length", "max_model_len")],
        "set algorithm.max_prompt_tokens and algorithm.max_response_tokens",
    ),
    **dict.fromkeys(
        [
            f"{ROOT}.rollout.{name}"
            for name in (
                "log_prob_micro_batch_size", "log_prob_micro_batch_size_per_gpu", "log_prob_use_dynamic_bsz",
                "log_prob_max_token_len_per_gpu",
            )
        ],
        _BATCHES,
    ),
    f"{ROOT}.rollout.val_kwargs": "set the fields of validation",
    f"{ROOT}.rollout.engine_kwargs": "the generator is vLLM; set actor_rollout_ref.rollout.engine_kwargs.vllm",
    f"{ROOT}.rollout.profiler": _PROFILE,
}  # fmt: skip
"""What to use in place of a setting, or of a section, that has no effect here."""


def find_unread(path: Sequence[str]) -> str | None:
    """Return what to use in place of verl's setting at `path`, "" if this engine reads it, None if no table names it.

    A section is read if all named settings below it are.
    """
    key = ".".join(path)
    below = next((reason for name, reason in INSTEAD.items() if name.startswith(f"{key}.")), "")
    for length in range(len(path), 0, -1):
        name = ".".join(path[:length])
        if name in INSTEAD:
            return INSTEAD[name]
        if name in READ:
            return below
    return None
