"""Generation without vLLM: a Ray actor that samples with a Hugging Face model, behind verl's replica interface.

It takes the place of vLLM. One server a replica, requests gathered into batches.
"""

import asyncio
import logging
import os
import random
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray
import torch
from transformers import AutoModelForCausalLM
from verl.workers.rollout.base import BaseRollout
from verl.workers.rollout.replica import RolloutReplica, TokenOutput
from verl.workers.rollout.utils import ensure_async_iterator

from tests.verl_on_cpu import STUCK


@dataclass(frozen=True, slots=True)
class SampleRequest:
    """One response to sample; temperature 0 is greedy."""

    prompt_ids: list[int]
    temperature: float
    max_new_tokens: int
    seed: int
    end_token_ids: frozenset[int]


@dataclass(slots=True)
class _Row:
    request: SampleRequest
    generator: torch.Generator
    token_ids: list[int] = field(default_factory=list)
    log_probs: list[float] = field(default_factory=list)
    is_over: bool = False


@torch.inference_mode()
def sample_responses(model: Any, requests: Sequence[SampleRequest]) -> list[tuple[list[int], list[float]]]:
    """Return token ids (T,) and log-probs (T,) of a response a request, end-of-sequence token included.

    A row's draws depend on its request alone, up to rounding in batches of different shape.
    """
    rows = [_Row(request, torch.Generator().manual_seed(request.seed)) for request in requests]
    input_ids, attention_mask = _pad_left([request.prompt_ids for request in requests])
    positions = (attention_mask.cumsum(1) - 1).clamp(min=0)
    temperatures = torch.tensor([request.temperature or 1.0 for request in requests])[:, None]
    cache = None
    while not all(row.is_over for row in rows):
        output = model(
            input_ids=input_ids,
            attention_mask=attention_mask,
            position_ids=positions,
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        cache = output.past_key_values
        log_probs = torch.log_softmax(output.logits[:, -1].float() / temperatures, dim=-1)
        input_ids = torch.tensor([[_draw(row, prob)] for row, prob in zip(rows, log_probs, strict=True)])
        attention_mask = torch.cat([attention_mask, attention_mask.new_ones(len(rows), 1)], dim=1)
        positions = positions[:, -1:] + 1
    return [(row.token_ids, row.log_probs) for row in rows]


def _draw(row: _Row, log_probs: torch.Tensor) -> int:
    if row.is_over:
        return 0
    if row.request.temperature == 0.0:
        token = int(log_probs.argmax())
    else:
        token = int(torch.multinomial(log_probs.exp(), 1, generator=row.generator))
    row.token_ids.append(token)
    row.log_probs.append(float(log_probs[token]))
    row.is_over = token in row.request.end_token_ids or len(row.token_ids) >= row.request.max_new_tokens
    return token


def _pad_left(prompts: Sequence[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return token ids and attention mask, each (rows, longest prompt)."""
    longest = max(len(prompt) for prompt in prompts)
    input_ids = torch.zeros(len(prompts), longest, dtype=torch.long)
    attention_mask = torch.zeros_like(input_ids)
    for row, prompt in enumerate(prompts):
        input_ids[row, longest - len(prompt) :] = torch.tensor(prompt)
        attention_mask[row, longest - len(prompt) :] = 1
    return input_ids, attention_mask


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
        """Load the trained weights, which are exactly those of this model."""
        parameters = self._model.state_dict()
        tied = {"lm_head.weight"} if self._model.config.tie_word_embeddings else set()
        assert weights.keys() | tied == parameters.keys() | tied, sorted(weights.keys() ^ parameters.keys())
        with torch.no_grad():
            for name, tensor in weights.items():
                parameters[name].copy_(tensor)
        self._step = step

    async def do_nothing(self, *_arguments: Any, **_options: Any) -> None:
        """Answer a call that concerns GPU memory, or once the model is loaded."""

    async def set_global_steps(self, step: int) -> None:
        self._step = step

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
    """One server, started next to the workers it takes weights from."""

    async def launch_servers(self) -> None:
        """Start the server and wait until its model is loaded."""
        name = server_name(self.replica_rank)
        num_threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
        actor = ray.remote(HfServer).options(name=name, num_cpus=1, max_concurrency=MAX_CONCURRENCY)
        server = actor.remote(self.model_config.path, num_threads, self.config.response_length)
        await server.do_nothing.remote()
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
        """Do nothing likewise."""

    async def update_weights(
        self, weights: AsyncIterator[tuple[str, torch.Tensor]], global_steps: int | None = None, **_options: Any
    ) -> None:
        """Send every tensor; each rank takes part in gathering them, one rank a replica sends."""
        named: dict[str, torch.Tensor] = {}
        async for name, tensor in ensure_async_iterator(weights):
            named[name] = tensor.detach().to("cpu", torch.float32).clone()
        if self._is_sender:
            await ray.get_actor(server_name(self._replica_rank)).load_weights.remote(named, global_steps)


class StuckAdapter(HfAdapter):
    """Its second exchange never ends."""

    _num_exchanges = 0

    async def update_weights(self, *arguments: Any, **options: Any) -> None:
        """Send every tensor, once."""
        self._num_exchanges += 1
        if self._num_exchanges > 1:
            logger.warning(STUCK)
            time.sleep(10**6)  # as verl's: the worker's loop of events is blocked
        await super().update_weights(*arguments, **options)
