"""verl's FSDP2 training engine."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from verl.utils.device import get_device_id
from verl.utils.fsdp_utils import (
    load_fsdp_model_to_gpu,
    normalize_peft_param_name,
    offload_fsdp_model_to_cpu,
    offload_fsdp_optimizer,
)
from verl.workers.engine import EngineRegistry
from verl.workers.engine.fsdp.transformer_impl import FSDPEngineWithLMHead

from exgrpo_core.verl_plugin.attention_kernel import use_cached_kernel
from exgrpo_core.verl_plugin.rank_files import load_resharded, num_ranks_of, remove_others, write_checksums

_OF_RUN = ("initial_lr", "weight_decay", "betas")
"""Settings of an optimizer's group that the specification decides, which a branch may change."""


@EngineRegistry.register(model_type="language_model", backend="fsdp2", device="cuda", vendor="nvidia")
class GpuEngine(FSDPEngineWithLMHead):
    """Shards an output matrix that is not the embedding so that verl's fused kernels can read it.

    verl 0.9.1 shards it as a module by itself, which FSDP2 gathers for calls of the module, but the kernels read its
    weight without a call (verl's issue 7520). Tied matrices it leaves to the root, which is gathered in the whole pass.

    Low-rank adapters start from the run's seed, and servers get them as part of the weights. Each rank writes checksums
    of what it saves; what another number of ranks saved is loaded too.
    """

    checkpoint_manager: Any
    engine_config: Any
    model_config: Any
    module: Any
    optimizer: Any
    lr_scheduler: Any
    _is_lora: bool
    _is_offload_param: bool
    _is_offload_optimizer: bool

    def save_checkpoint(self, local_path: str, *most_of_it: Any, **options: Any) -> None:
        """Save as verl does, then each rank's checksums."""
        folder, num_ranks, rank = Path(local_path), torch.distributed.get_world_size(), torch.distributed.get_rank()
        if rank == 0:
            remove_others(folder, num_ranks)
        torch.distributed.barrier()
        super().save_checkpoint(local_path, *most_of_it, **options)
        write_checksums(folder, num_ranks, rank)
        torch.distributed.barrier()

    def load_checkpoint(self, local_path: str, *most_of_it: Any, **options: Any) -> None:
        """Load what this or another number of ranks saved; learning rate, decay and betas stay those of this run."""
        optimizer, schedule = self.optimizer, self.lr_scheduler
        if optimizer is None:
            self._load_saved(local_path, *most_of_it, **options)
            return
        ours = [{name: group[name] for name in _OF_RUN} for group in optimizer.param_groups]
        self._load_saved(local_path, *most_of_it, **options)
        schedule.base_lrs = [group["initial_lr"] for group in ours]
        for group, settings, factor in zip(optimizer.param_groups, ours, schedule.lr_lambdas, strict=True):
            group.update(settings, lr=settings["initial_lr"] * factor(schedule.last_epoch))

    def _load_saved(self, local_path: str, *most_of_it: Any, **options: Any) -> None:
        num_saved = num_ranks_of(Path(local_path))
        if num_saved in (None, torch.distributed.get_world_size()):
            super().load_checkpoint(local_path, *most_of_it, **options)
            return
        if self._is_offload_param:
            load_fsdp_model_to_gpu(self.module)
        contents = self.checkpoint_manager
        load_resharded(
            Path(local_path),
            num_saved,
            self.module if contents.should_load_model else None,
            self.optimizer if contents.should_load_optimizer else None,
            self.lr_scheduler if contents.should_load_extra else None,
        )
        torch.distributed.barrier()
        if self._is_offload_param:
            offload_fsdp_model_to_cpu(self.module)
        if self._is_offload_optimizer:
            offload_fsdp_optimizer(self.optimizer)

    def get_per_tensor_param(self, **options: Any) -> Any:
        """Return every weight, gathered; where adapters are to be merged, one that has them is W + (alpha / rank) B A.

        verl would write the sum into W, in bfloat16 for the servers, and put W back afterwards.
        """
        if self._is_lora and self.model_config.lora.get("merge", False):
            return self._adapted_weights(), None
        return super().get_per_tensor_param(**options)

    def _adapted_weights(self) -> Iterator[tuple[str, torch.Tensor]]:
        state, scaling = self.module.state_dict(), self.model_config.lora_alpha / self.model_config.lora_rank
        for plain_name, name in normalize_peft_param_name({name: name for name in state}).items():
            weight = _gather(state[name])
            projection = name.removesuffix("base_layer.weight")
            if projection != name:
                first, second = (_gather(state[f"{projection}lora_{part}.default.weight"]) for part in "AB")
                weight = torch.addmm(weight, second, first, alpha=scaling)
            yield plain_name, weight

    def _build_module(self) -> Any:
        use_cached_kernel()
        return super()._build_module()

    def _build_lora_module(self, module: Any) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.engine_config.seed)
            return super()._build_lora_module(module)

    def _build_fsdp_module(self, module: Any) -> Any:
        if not self.model_config.use_fused_kernels:
            return super()._build_fsdp_module(module)
        config, is_tied = module.config, module.config.tie_word_embeddings
        config.tie_word_embeddings = True
        try:
            return super()._build_fsdp_module(module)
        finally:
            config.tie_word_embeddings = is_tied


def _gather(value: Any) -> Any:
    """Return a whole tensor, without gradients, on the device that its gathering needs."""
    is_sharded, moved = isinstance(value, DTensor), value.to(get_device_id())
    return moved.full_tensor() if is_sharded else moved.detach()
