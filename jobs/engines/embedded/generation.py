"""Rollouts, from prompts to ragged responses, and scores of responses, in batches that fit into memory."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import BoolArray, Float32Array, Int32Array, TrajectoryScores
from jobs.engines.embedded.decoding import DecodedRows, is_end
from jobs.engines.embedded.model import PolicyModel
from jobs.engines.embedded.packing import TokenSequence
from jobs.engines.embedded.sampling import Sampler
from jobs.engines.embedded.vocabulary import Scoring


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


SCORING_BYTES_SHARE = 4
"""A pass that keeps no activations takes at most this fraction of what training takes a token."""


@torch.inference_mode()
def score_sequences(policy: PolicyModel, sequences: Sequence[TokenSequence], temperature: float) -> TrajectoryScores:
    """Return per-token log-probs and entropies of each response, in order."""
    log_probs: list[Float32Array] = [np.empty(0, dtype=np.float32)] * len(sequences)
    entropies = list(log_probs)
    max_tokens = max(1, SCORING_BYTES_SHARE * policy.working_bytes // policy.backend.training_bytes_per_token)
    for batch in policy.backend.batches(sequences, max_tokens):
        scores = policy.backend.score([sequences[i] for i in batch], Scoring(temperature))
        ends = np.cumsum([sequences[i].token_ids.size for i in batch])[:-1]
        batch_log_probs = np.split(scores.log_probs.cpu().numpy(), ends)
        batch_entropies = [] if scores.entropies is None else np.split(scores.entropies.cpu().numpy(), ends)
        for i, row_log_probs, row_entropies in zip(batch, batch_log_probs, batch_entropies, strict=True):
            log_probs[i] = row_log_probs.copy()
            entropies[i] = row_entropies.copy()
    return TrajectoryScores(log_probs, entropies)
