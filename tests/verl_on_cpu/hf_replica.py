"""Generation without vLLM: a Ray actor that samples with a Hugging Face model, behind verl's replica interface.

It takes the place of vLLM. One server a replica, requests gathered into batches.
"""

import asyncio
import logging
import os
import random
from collections.abc import AsyncIterator
from typing import Any

import ray
import torch
from transformers import AutoModelForCausalLM
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from tests.verl_on_cpu.hf_sampling import SampleRequest, sample_responses

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.05
MAX_CONCURRENCY = 10_000
MAX_BATCH_ROWS = 256
STATELESS_CALLS = (
    "wake_up", "sleep", "abort_all_requests", "resume_generation", "clear_kv_cache", "release_kv_cache",
    "resume_kv_cache", "start_profile", "stop_profile",
)  # fmt: skip
"""Calls of verl's server protocol that free or keep GPU memory, which there is none of."""


def server_name(replica_rank: int) -> str:
    """Return the name of a replica's actor, by which workers find it to send weights."""
    return f"exgrpo_hf_server_{replica_rank}"


class HfServer:
    """Answers verl's generation requests; torch draws with the seed of each request."""

    def __init__(self, model_path: str, num_threads: int, max_new_tokens: int) -> None:
        torch.set_num_threads(num_threads)
        model = AutoModelForCausalLM.from_pretrained(
            model_path, dtype=torch.float32, attn_implementation="sdpa", trust_remote_code=False
        )
        self._model = model.train(mode=False)
        self._max_new_tokens = max_new_tokens
        end_tokens = model.generation_config.eos_token_id
        self._end_token_ids = end_tokens if isinstance(end_tokens, list) else [end_tokens]
        self._waiting: asyncio.Queue[tuple[SampleRequest, asyncio.Future[Any]]] = asyncio.Queue()
        self._loop: asyncio.Task[None] | None = None
        self._step: int | None = None

    async def generate(self, prompt_ids: list[int], sampling_params: dict[str, Any], **_request: Any) -> TokenOutput:
        """Return one response with the log-probs of its tokens at sampling temperature.

        verl's agent loops name neither length, seed nor end tokens; the plug-in's names them.
        """
        if self._loop is None:
            self._loop = asyncio.create_task(self._serve())
        request = SampleRequest(
            prompt_ids=prompt_ids,
            temperature=float(sampling_params["temperature"]),
            max_new_tokens=int(sampling_params.get("max_tokens", self._max_new_tokens)),
            seed=int(sampling_params.get("seed", random.getrandbits(31))),
            end_token_ids=frozenset(sampling_params.get("stop_token_ids", self._end_token_ids)),
        )
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        await self._waiting.put((request, answer))
        token_ids, log_probs = await answer
        fields = {"global_steps": self._step}
        return TokenOutput(token_ids=token_ids, log_probs=log_probs, stop_reason="completed", extra_fields=fields)

    async def load_weights(self, weights: dict[str, torch.Tensor], step: int | None) -> None:
        """Load the trained weights.

        Raises:
            ValueError: They are not exactly those of this model.
        """
        parameters = self._model.state_dict()
        tied = {"lm_head.weight"} if self._model.config.tie_word_embeddings else set()
        if weights.keys() | tied != parameters.keys() | tied:
            raise ValueError(
                f"weights: expected those of the model, differing in {sorted(weights.keys() ^ parameters.keys())}."
            )
        with torch.no_grad():
            for name, tensor in weights.items():
                parameters[name].copy_(tensor)
        self._step = step

    async def do_nothing(self, *_arguments: Any, **_options: Any) -> None:
        """Answer a call that concerns GPU memory."""

    async def set_global_steps(self, step: int) -> None:
        """Record the step of the weights."""
        self._step = step

    def is_ready(self) -> bool:
        """Answer once the model is loaded."""
        return True

    async def _serve(self) -> None:
        while True:
            batch = [await self._waiting.get()]
            num_seen = 0
            # A step's requests come one after the other; batches of the same rows round the same way.
            while num_seen != len(batch) < MAX_BATCH_ROWS:
                num_seen = len(batch)
                await asyncio.sleep(GATHER_SECONDS)
                while not self._waiting.empty() and len(batch) < MAX_BATCH_ROWS:
                    batch.append(self._waiting.get_nowait())
            batch.sort(key=lambda waiting: waiting[0].seed)
            requests = [request for request, _ in batch]
            try:
                sampled = await asyncio.to_thread(sample_responses, self._model, requests)
            except Exception as error:
                logger.exception("A batch of %d requests failed.", len(batch))
                for _, answer in batch:
                    answer.set_exception(error)
            else:
                for (_, answer), item in zip(batch, sampled, strict=True):
                    answer.set_result(item)


for _name in STATELESS_CALLS:
    setattr(HfServer, _name, HfServer.do_nothing)


class HfReplica(RolloutReplica):
    """One server, started beside the workers it takes weights from."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded."""
        name = server_name(self.replica_rank)
        num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        actor = ray.remote(HfServer).options(name=name, num_cpus=1, max_concurrency=MAX_CONCURRENCY)
        server = actor.remote(self.model_config.path, num_threads, self.config.response_length)
        await server.is_ready.remote()
        self.servers = [server]
        self._server_handle, self._server_address = server, name


class HfAdapter(BaseRollout):
    """In a training worker: hands its weights to the server through Ray's object store."""

    def __init__(self, config: Any, model_config: Any, device_mesh: Any = None, replica_rank: int = -1) -> None:
        super().__init__(config, model_config, device_mesh)
        tensor_parallel = self.config.tensor_model_parallel_size
        rank = int(os.environ["RANK"])
        self._is_sender = rank % tensor_parallel == 0
        self._replica_rank = rank // tensor_parallel if replica_rank == -1 else replica_rank

    async def resume(self, tags: list[str]) -> None:
        """Do nothing: weights and cache stay in memory."""

    async def release(self) -> None:
        """Do nothing: weights and cache stay in memory."""

    async def update_weights(
        self, weights: AsyncIterator[tuple[str, torch.Tensor]], global_steps: int | None = None, **_options: Any
    ) -> None:
        """Send every tensor; each rank takes part in gathering them, one rank a replica sends."""
        named: dict[str, torch.Tensor] = {}
        async for name, tensor in ensure_async_iterator(weights):
            named[name] = tensor.detach().to("cpu", torch.float32).clone()
        if self._is_sender:
            await ray.get_actor(server_name(self._replica_rank)).load_weights.remote(named, global_steps)
