"""Prompts into the cache: what they begin with alike goes through the model once, whatever the number of rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from exgrpo_core.types import Int32Array, Int64Array
from jobs.engines.embedded.attention import attend_causally
from jobs.engines.embedded.decoder import Decoder
from jobs.engines.embedded.kv_cache import KvCache
from jobs.engines.embedded.packing import index_tensor
from jobs.engines.embedded.prefix_tree import build_prefix_tree


@dataclass(frozen=True, slots=True)
class DistinctPrompts:
    """U distinct prompts, in the order of their first rows, as N input tokens.

    `rows` (B,), on the CPU, says which of the prompts each row continues.
    `sources` (U, P) is the input token at each place of each prompt, any one behind its end; `slots` (N,) one place of
    each input token; `last_index` (U,) the last token of each prompt, `lengths` (U,) its tokens.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    sources: torch.Tensor
    slots: torch.Tensor
    last_index: torch.Tensor
    lengths: torch.Tensor
    rows: Int64Array


def distinct_prompts(prompts: Sequence[Int32Array], device: torch.device) -> DistinctPrompts:
    """Lay the distinct histories of all prompts end to end."""
    tree = build_prefix_tree(prompts)
    lengths = tree.is_token.sum(axis=1)
    last = tree.nodes[np.arange(len(prompts)), lengths - 1]
    _, first_row, rows = np.unique(last, return_index=True, return_inverse=True)
    by_appearance = np.argsort(first_row)
    first_row, rows = first_row[by_appearance], np.argsort(by_appearance)[rows]
    sources, is_token = tree.nodes[first_row], tree.is_token[first_row]
    slots = np.empty_like(tree.token_ids)
    slots[sources[is_token]] = np.flatnonzero(is_token)
    return DistinctPrompts(
        input_ids=index_tensor(tree.token_ids, device),
        positions=index_tensor(tree.positions, device),
        sources=index_tensor(np.where(is_token, sources, 0), device),
        slots=index_tensor(slots, device),
        last_index=index_tensor(last[first_row], device),
        lengths=index_tensor(lengths[first_row], device),
        rows=rows,
    )


class _PrefillAttention:
    """Attention inside each prompt; stores keys and values of a layer for every prompt."""

    def __init__(self, cache: KvCache, prompts: DistinctPrompts) -> None:
        self._cache = cache
        self._prompts = prompts

    def __call__(self, layer: int, queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:  # noqa: ARG002 - layers come in order
        prompts = self._prompts
        heads = torch.cat([queries, keys, values], dim=1)
        padded = F.embedding(prompts.sources, heads.flatten(1))
        padded = padded.view(*prompts.sources.shape, *heads.shape[1:]).transpose(1, 2)
        sizes = [queries.shape[1], keys.shape[1], values.shape[1]]
        prompt_queries, prompt_keys, prompt_values = torch.split(padded, sizes, dim=1)
        self._cache.add_prompts(prompt_keys, prompt_values)
        attended = attend_causally(prompt_queries, prompt_keys, prompt_values)
        return attended.transpose(1, 2).flatten(0, 1).flatten(1)[prompts.slots]


def prefill(decoder: Decoder, prompts: DistinctPrompts, num_new: int) -> tuple[KvCache, torch.Tensor]:
    """Return a cache of the prompts, with room for `num_new` tokens of every row, and last hidden states (U, d)."""
    cache = KvCache(prompts.lengths, prompts.sources.shape[1], prompts.rows.size, num_new, decoder.compute_dtype)
    attend = _PrefillAttention(cache, prompts)
    hidden = decoder.run(prompts.input_ids, prompts.positions, attend, selected=prompts.last_index)
    return cache, hidden
