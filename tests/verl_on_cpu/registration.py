"""What `import verl` loads in every process of the tests: the platform, and what else enters verl's registries."""

from dataclasses import replace
from importlib import import_module
from typing import Any

import torch.distributed
from wrapt import register_post_import_hook

from tests.verl_on_cpu import generator

HF_ADAPTERS = {"hf": "HfAdapter", "hf-stuck": "StuckAdapter"}
"""What hands servers without vLLM their weights; with vLLM servers and adapter are those of GPUs."""
GENERATOR = generator()

_init_process_group = torch.distributed.init_process_group


def init_process_group(backend: str, **options: Any) -> None:
    """Join the workers' process group; verl asks for the backends of two devices, which are one here."""
    _init_process_group("cpu:gloo" if backend == "cpu:gloo,cpu:gloo" else backend, **options)


def _load_replica() -> Any:
    return import_module("tests.verl_on_cpu.hf_replica").HfReplica


def _register_replica(module: Any) -> None:
    module.RolloutReplicaRegistry.register("vllm", _load_replica)


def _register_adapter(module: Any) -> None:
    module._ROLLOUT_REGISTRY["vllm", "async"] = f"tests.verl_on_cpu.hf_replica.{HF_ADAPTERS[GENERATOR]}"


def _register_weight_exchange(_module: Any) -> None:
    import_module("tests.verl_on_cpu.weight_exchange")


def _use_cpu_extension(module: Any) -> None:
    module.EXTENSION = "tests.verl_on_cpu.vllm_cpu.CpuWorkerExtension"
    if GENERATOR == "hf-stuck":
        module.PATIENCE_SECONDS = 2.0


def _use_pageable_memory(module: Any) -> None:
    """Keep the reference model out of pinned memory, in which verl puts it for copies to a GPU."""
    build = module.FSDPEngineWithLMHead._build_fsdp_module

    def build_fsdp_module(engine: Any, module: Any) -> Any:
        config = engine.engine_config
        engine.engine_config = replace(config, forward_only=False)
        try:
            return build(engine, module)
        finally:
            engine.engine_config = config

    module.FSDPEngineWithLMHead._build_fsdp_module = build_fsdp_module


torch.distributed.init_process_group = init_process_group
# The platform at once: verl's modules look for it when they are imported.
import_module("tests.verl_on_cpu.processor_platform")
register_post_import_hook(_use_cpu_extension, "exgrpo_core.verl_plugin.own_exchange")
if GENERATOR in HF_ADAPTERS:
    register_post_import_hook(_register_replica, "verl.workers.rollout.replica")
    register_post_import_hook(_register_adapter, "verl.workers.rollout.base")
register_post_import_hook(_register_weight_exchange, "verl.checkpoint_engine")
register_post_import_hook(_use_pageable_memory, "verl.workers.engine.fsdp.transformer_impl")
