"""Log-probs and entropies of given responses under the current policy."""

from collections.abc import Sequence

import numpy as np
import torch

from exgrpo_core.types import Float32Array, TrajectoryScores
from jobs.engines.embedded.model import PolicyModel
from jobs.engines.embedded.packing import TokenSequence
from jobs.engines.embedded.vocabulary import Scoring

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
