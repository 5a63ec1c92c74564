"""Decoding token by token: the unfinished rows of a batch of rollouts, with the cache of their keys and values."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from exgrpo.jobs.training.engines.embedded.decoder import Decoder, HeadShape
from exgrpo.jobs.training.engines.embedded.packing import build_prefix_tree, index_tensor
from exgrpo.jobs.training.engines.embedded.sampling import Draws, Sampler
from exgrpo.jobs.training.engines.embedded.shared_prefixes import RowCopies, SharedPrefixes
from exgrpo_core.types import Int32Array, Int64Array


class KvCache:
    """Keys and values (2, capacity, G, columns, D) a layer; the first `num_rows` rows are in use, and none shrinks.

    Prompts are in the first `num_prompt_columns`, each from column 0; generated tokens follow in columns that all
    rows share. `prompt_lengths` (U,) says where each row's prompt ends: the columns from there to the first generated
    token are never attended to.
    """

    def __init__(
        self,
        prompt_lengths: torch.Tensor,
        *,
        num_prompt_columns: int,
        capacity: int,
        num_new: int,
        shape: HeadShape,
        num_layers: int,
        dtype: torch.dtype,
    ) -> None:
        device = prompt_lengths.device
        self.num_rows = prompt_lengths.shape[0]
        self.length = num_prompt_columns
        self._shape = shape
        self._num_prompt_columns = num_prompt_columns
        num_columns = num_prompt_columns + num_new
        size = (2, capacity, shape.num_kv_heads, num_columns, shape.head_dim)
        self._layers = [torch.empty(size, dtype=dtype, device=device) for _ in range(num_layers)]
        self._prompt_lengths = prompt_lengths.new_zeros(capacity)
        self._prompt_lengths[: self.num_rows] = prompt_lengths
        is_gap = torch.arange(num_prompt_columns, device=device) >= prompt_lengths[:, None]
        self._has_gaps = bool(is_gap.any())
        # (capacity, G, 1, columns): added to the scores of each row and its heads of keys, one product each.
        self._bias = torch.zeros(capacity, shape.num_kv_heads, 1, num_columns, dtype=dtype, device=device)
        self._bias[: self.num_rows, ..., :num_prompt_columns].masked_fill_(is_gap[:, None, None], float("-inf"))
        self._use_rows(self.num_rows)

    @property
    def positions(self) -> torch.Tensor:
        """Position (num_rows,) of the next token of each row."""
        return self._prompt_lengths[: self.num_rows] + (self.length - self._num_prompt_columns)

    def store_prompts(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> None:
        """Give the rows in use the prompts' keys and values (U, G, P, D)."""
        for source, target in zip((keys, values), self._layers[layer], strict=True):
            target[: self.num_rows, :, : self._num_prompt_columns] = source

    def attend(self, layer: int, heads: torch.Tensor) -> torch.Tensor:
        """Store one new token a row, `heads` (B, H + 2 G, D), and return its attention to all before it and itself."""
        shape, end = self._shape, self.length + 1
        in_use, keys, values = self._in_use[layer]
        queries = heads[:, : shape.num_heads].reshape(keys.shape[0], -1, shape.head_dim)
        new = heads[:, shape.num_heads :].view(self.num_rows, 2, shape.num_kv_heads, shape.head_dim)
        in_use[:, :, :, self.length] = new.transpose(0, 1)
        weights = self._scores(queries, keys[:, :end]).float().softmax(-1).to(values.dtype)
        return torch.bmm(weights, values[:, :end]).view(self.num_rows, -1)

    def _scores(self, queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Return scaled scores (B G, H / G, columns) of queries (B G, H / G, D) and keys (B G, columns, D)."""
        bias = self._bias_in_use[..., : keys.shape[1]]
        scale = {"beta": int(self._has_gaps), "alpha": self._shape.head_dim**-0.5}
        if keys.device.type == "cpu" and keys.dtype == torch.bfloat16:
            # A product with transposed keys would copy them all first.
            return torch.baddbmm(bias.mT, keys, queries.mT, **scale).mT
        return torch.baddbmm(bias, queries, keys.mT, **scale)

    def advance(self) -> None:
        """Move to the next column, once every layer has stored its token."""
        self.length += 1

    def copy_rows(self, copies: RowCopies) -> None:
        """Copy rows to others, then use one row a prefix."""
        if copies.sources.size:
            self._copy(copies)
        if self.num_rows != copies.num_prefixes:
            self._use_rows(copies.num_prefixes)

    def _copy(self, copies: RowCopies) -> None:
        sources, targets = (
            index_tensor(rows, self._prompt_lengths.device) for rows in (copies.sources, copies.targets)
        )
        for layer in self._layers:
            if layer.device.type == "cpu":
                # NumPy copies runs of columns, torch one number at a time. NumPy has no bfloat16, so as bytes.
                rows = layer.view(torch.uint8).numpy()
                rows[:, copies.targets, :, : self.length] = rows[:, copies.sources, :, : self.length]
            else:
                layer[:, targets, :, : self.length] = layer[:, sources, :, : self.length]
        if self._has_gaps:
            self._bias[targets] = self._bias[sources]
        self._prompt_lengths[targets] = self._prompt_lengths[sources]

    def _use_rows(self, num_rows: int) -> None:
        self.num_rows = num_rows
        used = [layer[:, :num_rows] for layer in self._layers]
        self._in_use = [(both, *both.flatten(1, 2)) for both in used]
        self._bias_in_use = self._bias[:num_rows].flatten(0, 1)


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


def attend_causally(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return causal attention (B, H, T, D) of queries (B, H, T, D) to keys and values (B, G, T, D)."""
    return F.scaled_dot_product_attention(
        queries, keys, values, is_causal=True, enable_gqa=queries.shape[1] != keys.shape[1]
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


COMPACTION_SHARE = 0.75
"""Finished rows are dropped from memory when at most this share of the rows in memory is unfinished."""


@dataclass(frozen=True, slots=True)
class DecodedRows:
    """Tokens of B rows in at most T steps; a row's columns after its first end token have no meaning.

    `token_ids`, `log_probs` and `entropies` are (B, T), on the CPU.
    """

    token_ids: torch.Tensor
    log_probs: torch.Tensor
    entropies: torch.Tensor


class Transcript:
    """Collects the draws of live rows; a dropped row keeps its tokens until then."""

    def __init__(self, num_rows: int, num_steps: int, device: torch.device) -> None:
        self._token_ids = torch.zeros(num_rows, num_steps, dtype=torch.int64)
        self._log_probs = torch.zeros(num_rows, num_steps)
        self._entropies = torch.zeros(num_rows, num_steps)
        self.live = torch.arange(num_rows, device=device)
        self._pending: list[Draws] = []
        self._num_flushed = 0

    def add(self, draws: Draws) -> None:
        """Add one token of every live row."""
        self._pending.append(draws)

    def keep_rows(self, rows: torch.Tensor) -> None:
        """Drop all live rows but these."""
        self._flush()
        self.live = self.live[rows]

    def rows(self) -> DecodedRows:
        """Return the tokens of all rows."""
        self._flush()
        return DecodedRows(self._token_ids, self._log_probs, self._entropies)

    def _flush(self) -> None:
        if not self._pending:
            return
        live = self.live.cpu()
        columns = slice(self._num_flushed, self._num_flushed + len(self._pending))
        self._token_ids[live, columns] = torch.stack([draws.token_ids for draws in self._pending], dim=1).cpu()
        self._log_probs[live, columns] = torch.stack([draws.log_probs for draws in self._pending], dim=1).cpu()
        self._entropies[live, columns] = torch.stack([draws.entropies for draws in self._pending], dim=1).cpu()
        self._num_flushed += len(self._pending)
        self._pending.clear()


@torch.inference_mode()
def decode(
    decoder: Decoder,
    prompts: Sequence[Int32Array],
    max_new_tokens: int,
    sampler: Sampler,
    end_token_ids: torch.Tensor,
) -> DecodedRows:
    """Continue each prompt until one of `end_token_ids` or `max_new_tokens`; equal prefixes are computed once."""
    device = end_token_ids.device
    packed = distinct_prompts(prompts, device)
    decoder.prepare_positions(packed.sources.shape[1] + max_new_tokens)
    cache, hidden = prefill(decoder, packed, max_new_tokens)
    prefixes = SharedPrefixes(packed.rows, decoder.vocabulary_size)
    is_done = torch.zeros(len(prompts), dtype=torch.bool, device=device)
    transcript = Transcript(len(prompts), max_new_tokens, device)
    for step in range(max_new_tokens):
        shared = prefixes.locate_draws(device)
        draws = sampler.of_rows(transcript.live, step).draw(
            decoder.final_norm(hidden), decoder.logits, decoder.vocabulary_size, shared
        )
        transcript.add(draws)
        token_ids = draws.token_ids
        is_done |= is_end(token_ids, end_token_ids)
        num_live = is_done.numel() - int(is_done.sum())
        if num_live == 0 or step == max_new_tokens - 1:
            break
        if num_live <= COMPACTION_SHARE * is_done.numel() or prefixes.all_forked:
            kept, copies = prefixes.keep_rows((~is_done).nonzero()[:, 0].cpu().numpy())
            cache.copy_rows(copies)
            rows = index_tensor(kept, device)
            transcript.keep_rows(rows)
            token_ids, is_done = token_ids[rows], is_done[rows]
        if not prefixes.is_separate:
            next_ids, copies = prefixes.fork(token_ids.cpu().numpy(), is_done.cpu().numpy())
            cache.copy_rows(copies)
            token_ids = index_tensor(next_ids, device)
        hidden = decoder.run(token_ids, cache.positions, cache.attend)
        cache.advance()
    return transcript.rows()


def is_end(token_ids: torch.Tensor, end_token_ids: torch.Tensor) -> torch.Tensor:
    """Return which tokens (B,) end a response."""
    if end_token_ids.numel() == 1:
        return token_ids == end_token_ids
    return torch.isin(token_ids, end_token_ids)
