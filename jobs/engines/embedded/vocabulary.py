"""What the output embedding makes of hidden states: log-probs and entropies, in chunks where V is large."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

MAX_LOGITS = 2**26
"""Logits held at a time (256 MiB in float32)."""
CACHED_LOGITS = 2**21
"""Logits that a CPU goes through again and again while its caches hold them (8 MiB)."""

SMALL_VOCABULARY = 4096
"""Up to this many tokens torch's kernels over whole rows are as fast as ours in small pieces."""
_PIECE = 2**17
"""Logits that a CPU goes through several times while the cache of one core holds them (512 KiB)."""

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
    logits = head(hidden)
    if logits.shape[-1] > SMALL_VOCABULARY:
        scores: tuple[torch.Tensor, torch.Tensor | None] = _TargetScores.apply(  # type: ignore[no-untyped-call] # untyped
            logits, target_ids, scoring
        )
        return scores
    log_probs = scaled_log_probs(logits, scoring.temperature)
    entropies = entropies_of(log_probs, log_probs.exp()) if scoring.has_entropies else None
    return log_probs.gather(-1, target_ids[:, None])[:, 0], entropies


def pieces(logits: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the rows of logits (N, V) in pieces that a CPU's cache holds; a GPU takes them whole."""
    num_rows = max(1, _PIECE // logits.shape[-1]) if logits.device.type == "cpu" else max(1, logits.shape[0])
    return torch.split(logits, num_rows)


def shift(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the largest l (N, 1) of each row of logits x (N, V), and x - l."""
    largest = logits.amax(-1, keepdim=True)
    # 0 * -inf is NaN: tokens that cannot come contribute nothing to sums of products.
    return largest, (logits - largest).clamp_(min=torch.finfo(logits.dtype).min)


class _TargetScores(torch.autograd.Function):
    """Log-probs of targets and entropies, of logits that become their own gradient: one matrix (R, V) is ever held."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - autograd's
        logits: torch.Tensor,
        target_ids: torch.Tensor,
        scoring: Scoring,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log-probs and, if requested, entropies (R,) of logits (R, V)."""
        normalized = [_normalize(piece / scoring.temperature, scoring.has_entropies) for piece in pieces(logits)]
        normalizer, entropies = (torch.cat(part) for part in zip(*normalized, strict=True))
        ctx.save_for_backward(logits, target_ids, normalizer, entropies)
        ctx.scoring = scoring
        log_probs = logits.gather(-1, target_ids[:, None]) / scoring.temperature - normalizer
        return log_probs[:, 0], entropies[:, 0] if scoring.has_entropies else None

    @staticmethod
    def backward(
        ctx: Any,  # noqa: ANN401 - autograd's
        log_prob_gradient: torch.Tensor,
        entropy_gradient: torch.Tensor | None,
    ) -> tuple[torch.Tensor, None, None]:
        """Return the gradient of the logits: of a log-prob it is [target] - p, of an entropy H it is -p (log p + H)."""
        logits, target_ids, normalizer, entropies = ctx.saved_tensors
        temperature = ctx.scoring.temperature
        of_log_probs = log_prob_gradient[:, None] / temperature
        of_entropies = None if entropy_gradient is None else entropy_gradient[:, None] / temperature
        first = 0
        for piece in pieces(logits):
            rows = slice(first, first + piece.shape[0])
            log_probs = (piece / temperature).sub_(normalizer[rows])
            factor = of_log_probs[rows]
            if of_entropies is not None:
                # 0 * -inf is NaN, as in `shift`.
                distances = (log_probs + entropies[rows]).clamp_(min=torch.finfo(piece.dtype).min)
                factor = distances.mul_(of_entropies[rows]).add_(factor)
            torch.mul(log_probs.exp_(), -factor, out=piece)
            first = rows.stop
        return logits.scatter_add_(-1, target_ids[:, None], of_log_probs), None, None


def _normalize(logits: torch.Tensor, has_entropies: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Return log sum exp (N, 1) of each row of logits (N, V), and the entropies (N, 1), or zeros."""
    largest, shifted = shift(logits)
    weights = shifted.exp()
    total = weights.sum(-1, keepdim=True)
    if not has_entropies:
        return largest + total.log(), torch.zeros_like(total)
    return largest + total.log(), total.log() - torch.linalg.vecdot(weights, shifted)[:, None] / total
