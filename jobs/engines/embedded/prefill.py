"""Prompts into the cache: each distinct one goes through the model once, whatever the number of its rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import Int32Array
from jobs.engines.embedded.attention import attend_causally
from jobs.engines.embedded.decoder import Decoder
from jobs.engines.embedded.kv_cache import KvCache
from jobs.engines.embedded.packing import count_up, find_distinct, index_tensor


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
    longest = int(lengths.max())
    positions = count_up(lengths)
    return DistinctPrompts(
        input_ids=index_tensor(np.concatenate(distinct), device),
        positions=index_tensor(positions, device),
        slots=index_tensor(np.repeat(longest * np.arange(lengths.size), lengths) + positions, device),
        last_index=index_tensor(np.cumsum(lengths) - 1, device),
        lengths=index_tensor(lengths, device),
        rows=index_tensor(rows, device),
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
