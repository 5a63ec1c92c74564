"""Rollouts: prompts to ragged responses, in batches that fit into memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import BoolArray, Float32Array, Int32Array
from jobs.engines.embedded.decoding import DecodedRows, is_end
from jobs.engines.embedded.model import PolicyModel
from jobs.engines.embedded.sampling import Sampler


@dataclass(frozen=True, slots=True)
class GeneratedResponse:
    """One response: token ids (T,) with the end token, log-probs and entropies (T,) at sampling temperature.

    `is_truncated` means that no end token came within the limit.
    """

    token_ids: Int32Array
    log_probs: Float32Array
    entropies: Float32Array
    is_truncated: bool


def generate(
    policy: PolicyModel, prompts: Sequence[Int32Array], max_new_tokens: int, sampler: Sampler
) -> list[GeneratedResponse]:
    """Return one response a prompt, in order. Equal prompts are read once a batch, so keep them together."""
    if not prompts:
        return []
    longest = max(prompt.size for prompt in prompts) + max_new_tokens
    row_bytes = policy.backend.cached_bytes_per_token * longest
    num_rows = max(1, policy.working_bytes // row_bytes)
    responses: list[GeneratedResponse] = []
    for start in range(0, len(prompts), num_rows):
        batch = prompts[start : start + num_rows]
        decoded = policy.backend.decode(batch, max_new_tokens, sampler, policy.end_token_ids)
        responses += _ragged(decoded, policy.end_token_ids.cpu())
    return responses


def _ragged(decoded: DecodedRows, end_token_ids: torch.Tensor) -> list[GeneratedResponse]:
    has_ended: BoolArray = is_end(decoded.token_ids, end_token_ids).numpy()
    is_truncated = np.logical_not(has_ended.any(axis=1))
    lengths = np.where(is_truncated, decoded.token_ids.shape[1], has_ended.argmax(axis=1) + 1)
    token_ids = decoded.token_ids.numpy().astype(np.int32)
    log_probs, entropies = decoded.log_probs.numpy(), decoded.entropies.numpy()
    # Copies: a view would keep the whole padded batch in memory as long as one trajectory lives.
    return [
        GeneratedResponse(
            token_ids[row, :length].copy(),
            log_probs[row, :length].copy(),
            entropies[row, :length].copy(),
            bool(is_truncated[row]),
        )
        for row, length in enumerate(lengths)
    ]
