"""Decoding token by token: the unfinished rows of a batch of rollouts, and the tokens they have so far."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from exgrpo.jobs.training.engines.embedded.decoder import Decoder
from exgrpo.jobs.training.engines.embedded.kv_cache import distinct_prompts, prefill
from exgrpo.jobs.training.engines.embedded.packing import index_tensor
from exgrpo.jobs.training.engines.embedded.sampling import Draws, Sampler
from exgrpo.jobs.training.engines.embedded.shared_prefixes import SharedPrefixes
from exgrpo_core.types import Int32Array

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
