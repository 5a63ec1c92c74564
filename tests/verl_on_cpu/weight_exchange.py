"""Weights for servers that are no training worker: through Ray, in place of verl's NCCL."""

import asyncio
import uuid
from collections.abc import AsyncIterator
from typing import Any

import ray
import torch
from verl.checkpoint_engine.base import CheckpointEngine, CheckpointEngineRegistry
from verl.workers.rollout.utils import ensure_async_iterator

POLL_SECONDS = 0.02


class WeightStore:
    """An actor that keeps the newest weights."""

    def __init__(self) -> None:
        self._token, self._weights = "", {}

    def put(self, token: str, weights: dict[str, torch.Tensor]) -> None:
        self._token, self._weights = token, weights

    def get(self, token: str) -> dict[str, torch.Tensor] | None:
        return self._weights if token == self._token else None


def open_store() -> Any:
    """Return the actor of this Ray, which lives as long as its job."""
    options = {"name": "exgrpo_weights", "get_if_exists": True, "num_cpus": 0, "lifetime": "detached"}
    return ray.remote(WeightStore).options(**options).remote()


@CheckpointEngineRegistry.register("nccl")
class RayCheckpointEngine(CheckpointEngine):
    """The first training rank puts each set of weights under a token that all learn beforehand."""

    def __init__(self, bucket_size: int, is_master: bool = False) -> None:
        self._bucket_size, self._is_master = bucket_size, is_master

    def prepare(self) -> dict[str, Any]:
        return {}

    @classmethod
    def build_topology(
        cls, actor_wg_world_size: int, rollout_world_size: int, metadata: list[dict]
    ) -> tuple[dict[str, list[Any]], dict[str, list[Any]]]:
        assert len(metadata) == actor_wg_world_size + rollout_world_size
        token = uuid.uuid4().hex
        return {"token": [token] * actor_wg_world_size}, {"token": [token] * rollout_world_size}

    def init_process_group(self, token: str) -> None:
        self._token = token

    def finalize(self) -> None:
        """Keep the store for the next weights."""

    async def send_weights(self, weights: Any, global_steps: int | None = None) -> None:  # noqa: ARG002 # verl's signature
        named = {}
        async for name, tensor in ensure_async_iterator(weights):  # each rank takes part in gathering them
            named[name] = tensor.detach().to("cpu", torch.float32).clone()
        if self._is_master:
            await open_store().put.remote(self._token, named)

    async def receive_weights(self, global_steps: int | None = None) -> AsyncIterator[tuple[str, torch.Tensor]]:  # noqa: ARG002 # likewise
        store = open_store()
        while (named := await store.get.remote(self._token)) is None:
            await asyncio.sleep(POLL_SECONDS)
        for name, tensor in named.items():
            yield name, tensor
