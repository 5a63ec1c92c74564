"""Prompts into the cache: each distinct one goes through the model once, whatever the number of its rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import Int32Array
from jobs.engines.embedded.attention import attend_causally
from jobs.engines.embedded.decoder import Decoder
from jobs.engines.embedded.kv_cache import KvCache
from jobs.engines.embedded.packing import find_distinct


@dataclass(frozen=True, slots=True)
class DistinctPrompts:
    """U distinct prompts, packed; `rows` (B,) says which of them each row continues."""

    input_ids: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    last_index: torch.Tensor
    lengths: torch.Tensor
    rows: torch.Tensor
    longest: int


def distinct_prompts(prompts: Sequence[Int32Array], device: torch.device) -> DistinctPrompts:
    """Pack one of each distinct prompt."""
    distinct, rows = find_distinct(prompts)
    lengths = np.array([prompt.size for prompt in distinct], dtype=np.int64)
    ends = np.cumsum(lengths)
    owner = np.repeat(np.arange(lengths.size), lengths)
    positions = np.arange(ends[-1]) - (ends - lengths)[owner]
    longest = int(lengths.max())

    def tensor(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values.astype(np.int64, copy=False)).to(device)

    return DistinctPrompts(
        input_ids=tensor(np.concatenate(distinct)),
        positions=tensor(positions),
        slots=tensor(owner * longest + positions),
        last_index=tensor(ends - 1),
        lengths=tensor(lengths),
        rows=tensor(rows),
        longest=longest,
    )


class _PrefillAttention:
    """Attention inside each prompt; stores keys and values of a layer for every row that continues the prompt."""

    def __init__(self, cache: KvCache, prompts: DistinctPrompts) -> None:
        self._cache = cache
        self._prompts = prompts

    def __call__(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - layers come in order
        prompts = self._prompts
        num_prompts = prompts.lengths.shape[0]
        heads = torch.cat([queries, keys, values], dim=1)
        padded = heads.new_zeros(num_prompts * prompts.longest, *heads.shape[1:]).index_copy(0, prompts.slots, heads)
        padded = padded.view(num_prompts, prompts.longest, *heads.shape[1:]).transpose(1, 2)
        sizes = [queries.shape[1], keys.shape[1], values.shape[1]]
        prompt_queries, prompt_keys, prompt_values = torch.split(padded, sizes, dim=1)
        self._cache.add_prompts(prompt_keys, prompt_values, prompts.rows)
        attended = attend_causally(prompt_queries, prompt_keys, prompt_values)
        return attended.transpose(1, 2).flatten(0, 1).flatten(1)[prompts.slots]


def prefill(decoder: Decoder, prompts: DistinctPrompts, num_new: int) -> tuple[KvCache, torch.Tensor]:
    """Return a cache with room for `num_new` tokens a row, and each row's last hidden state (B, d)."""
    cache = KvCache(prompts.lengths[prompts.rows], prompts.longest, num_new, decoder.compute_dtype)
    attend = _PrefillAttention(cache, prompts)
    hidden = decoder.run(prompts.input_ids, prompts.positions, attend, selected=prompts.last_index)
    return cache, hidden[prompts.rows]
