"""What vLLM's worker does with weights, by its name in vLLM's setting `worker_extension_cls`; see `weight_exchange`."""

from typing import Any

from verl.workers.rollout.vllm_rollout import bucketed_weight_transfer
from verl.workers.rollout.vllm_rollout.utils import vLLMColocateWorkerExtension

from exgrpo_core.verl_plugin.weight_exchange import LimitedReceiver, socket_of_job

# verl's method takes its receiver by this name when it is called; this process has no other use.
bucketed_weight_transfer.BucketedWeightReceiver = LimitedReceiver


class WeightExtension(vLLMColocateWorkerExtension):
    """verl's extension of vLLM's worker, which looks for the socket of its own job."""

    _job: str | None = None

    def update_weights_from_ipc(self, *arguments: Any, job: str | None = None, **options: Any) -> None:
        """Take over the weights that the training worker on this GPU sends; `job` is its job's name."""
        self._job = job
        super().update_weights_from_ipc(*arguments, **options)

    def _get_zmq_handle(self) -> str:
        handle: str = super()._get_zmq_handle()
        return handle if self._job is None else socket_of_job(handle, self._job)
