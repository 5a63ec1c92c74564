"""verl's FSDP2 training engine, on GPUs and where there is none."""

from dataclasses import replace
from typing import Any

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from exgrpo_core.verl_plugin.cpu_platform import PLATFORM_NAME


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cuda", vendor="nvidia")
class GpuEngine(FSDPEngineWithLMHead):
    """Shards an output matrix that is not the embedding so that verl's fused kernels can read it.

    verl 0.9.1 shards it as a module by itself, which FSDP2 gathers for calls of the module, but the kernels read its
    weight without a call (verl's issue 7520). Tied matrices it leaves to the root, which is gathered in the whole pass.
    """

    engine_config: Any
    model_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        if not self.model_config.use_fused_kernels:
            return super()._build_fsdp_module(module)
        config, is_tied = module.config, module.config.tie_word_embeddings
        config.tie_word_embeddings = True
        try:
            return super()._build_fsdp_module(module)
        finally:
            config.tie_word_embeddings = is_tied


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cuda", vendor=PLATFORM_NAME)
class CpuEngine(GpuEngine):
    """Keeps the reference model in pageable memory: verl pins it for copies to a GPU, which fails without one."""

    def _build_fsdp_module(self, module: Any) -> Any:
        config = self.engine_config
        self.engine_config = replace(config, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config
