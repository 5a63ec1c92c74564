"""Prompts into the cache: a prefix that prompts share goes through the model once, for any number of rollouts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from exgrpo_core.types import Int32Array, Int64Array
from jobs.engines.embedded.attention import attend_causally
from jobs.engines.embedded.decoder import Decoder
from jobs.engines.embedded.decoder_weights import HeadShape
from jobs.engines.embedded.kv_cache import KvCache
from jobs.engines.embedded.packing import index_tensor
from jobs.engines.embedded.prefix_tree import build_prefix_tree


@dataclass(frozen=True, slots=True)
class DistinctPrompts:
    """U distinct prompts, in the order of their first rows, as N input tokens.

    `rows` (B,), on the CPU, says which of the prompts each row continues.
    `sources` (U, P) is the input token in each column of each prompt, any one behind its end; `slots` (N,) the index of
    one column, flattened, that has each input token; `last_index` (U,) the last token of each prompt, `lengths` (U,)
    its number of tokens.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    sources: torch.Tensor
    slots: torch.Tensor
    last_index: torch.Tensor
    lengths: torch.Tensor
    rows: Int64Array


def distinct_prompts(prompts: Sequence[Int32Array], device: torch.device) -> DistinctPrompts:
    """Return the prompts with each distinct prefix once."""
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
    """Attention within each prompt; stores keys and values of a layer for every prompt."""

    def __init__(self, cache: KvCache, prompts: DistinctPrompts, shape: HeadShape) -> None:
        self._cache = cache
        self._prompts = prompts
        self._shape = shape

    def __call__(self, layer: int, heads: torch.Tensor) -> torch.Tensor:
        prompts = self._prompts
        padded = F.embedding(prompts.sources, heads.flatten(1))
        padded = padded.view(*prompts.sources.shape, *heads.shape[1:]).transpose(1, 2)
        queries, keys, values = torch.split(padded, self._shape.sizes, dim=1)
        self._cache.store_prompts(layer, keys, values)
        attended = attend_causally(queries, keys, values)
        return attended.transpose(1, 2).flatten(0, 1).flatten(1)[prompts.slots]


def prefill(decoder: Decoder, prompts: DistinctPrompts, num_new: int) -> tuple[KvCache, torch.Tensor]:
    """Return a cache of the prompts, with room for `num_new` tokens of every row, and last hidden states (U, d)."""
    cache = KvCache(
        prompts.lengths,
        num_prompt_columns=prompts.sources.shape[1],
        capacity=prompts.rows.size,
        num_new=num_new,
        shape=decoder.shape,
        num_layers=decoder.num_layers,
        dtype=decoder.compute_dtype,
    )
    attend = _PrefillAttention(cache, prompts, decoder.shape)
    hidden = decoder.run(prompts.input_ids, prompts.positions, attend, selected=prompts.last_index)
    return cache, hidden
