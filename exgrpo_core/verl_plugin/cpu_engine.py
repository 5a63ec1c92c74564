"""verl's FSDP training engine where there is no GPU."""

from dataclasses import replace
from typing import Any

from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from exgrpo_core.verl_plugin.cpu_platform import PLATFORM_NAME


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cuda", vendor=PLATFORM_NAME)
class CpuEngine(FSDPEngineWithLMHead):
    """Keeps the reference model in pageable memory: verl pins it for copies to a GPU, which fails without one."""

    engine_config: Any

    def _build_fsdp_module(self, module: Any) -> Any:
        config = self.engine_config
        self.engine_config = replace(config, forward_only=False)
        try:
            return super()._build_fsdp_module(module)
        finally:
            self.engine_config = config
