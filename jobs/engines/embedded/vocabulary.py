"""What the output embedding makes of hidden states: log-probs and entropies, in chunks where V is large."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

MAX_LOGITS = 2**25
"""Logits held at a time (128 MiB in float32)."""
CACHED_LOGITS = 2**21
"""Logits that a CPU goes through again and again while its caches hold them (8 MiB)."""

Head = Callable[[torch.Tensor], torch.Tensor]
"""Hidden states (N, d) to logits (N, V), float32."""


def scaled_log_probs(logits: torch.Tensor, temperature: float) -> torch.Tensor:
    """Return log softmax(logits / temperature), float32."""
    return F.log_softmax(logits if temperature == 1.0 else logits / temperature, dim=-1)


def entropies_of(log_probs: torch.Tensor, probabilities: torch.Tensor) -> torch.Tensor:
    """Return Shannon entropies (N,) in nats of distributions (N, V)."""
    # 0 * -inf is NaN: tokens that cannot come contribute nothing.
    return -(probabilities * log_probs.clamp(min=torch.finfo(log_probs.dtype).min)).sum(-1)


@dataclass(frozen=True, slots=True)
class TokenScores:
    """Log-probs (R,) of given tokens and, if requested, entropies (R,) of what they were drawn from."""

    log_probs: torch.Tensor
    entropies: torch.Tensor | None

    def take(self, indexes: torch.Tensor) -> "TokenScores":
        """Return the scores at `indexes` (S,) among the R, some more than once; gradients add up in one order."""
        entropies = None if self.entropies is None else F.embedding(indexes, self.entropies[:, None])[:, 0]
        return TokenScores(F.embedding(indexes, self.log_probs[:, None])[:, 0], entropies)


@dataclass(frozen=True, slots=True)
class Scoring:
    """What is asked of a forward pass."""

    temperature: float
    has_entropies: bool = True


def score_targets(
    hidden: torch.Tensor, head: Head, vocabulary_size: int, target_ids: torch.Tensor, scoring: Scoring
) -> TokenScores:
    """Score `target_ids` (R,) as drawn from hidden states (R, d), differentiably and with few logits at a time."""
    # With gradients, every chunk but a single one is computed twice.
    is_cached = hidden.device.type == "cpu" and not torch.is_grad_enabled()
    num_rows = max(1, (CACHED_LOGITS if is_cached else MAX_LOGITS) // vocabulary_size)
    if hidden.shape[0] <= num_rows:
        return TokenScores(*_score(hidden, head, target_ids, scoring))
    parts = []
    for chunk, targets in zip(torch.split(hidden, num_rows), torch.split(target_ids, num_rows), strict=True):
        if torch.is_grad_enabled():
            parts.append(checkpoint(_score, chunk, head, targets, scoring, use_reentrant=False))
        else:
            parts.append(_score(chunk, head, targets, scoring))
    log_probs, entropies = zip(*parts, strict=True)
    return TokenScores(torch.cat(log_probs), torch.cat(entropies) if scoring.has_entropies else None)


def _score(
    hidden: torch.Tensor, head: Head, target_ids: torch.Tensor, scoring: Scoring
) -> tuple[torch.Tensor, torch.Tensor | None]:
    log_probs = scaled_log_probs(head(hidden), scoring.temperature)
    entropies = entropies_of(log_probs, log_probs.exp()) if scoring.has_entropies else None
    return log_probs.gather(-1, target_ids[:, None])[:, 0], entropies
