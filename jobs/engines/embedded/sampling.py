"""Drawing the next tokens from logits."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from jobs.engines.embedded.vocabulary import (
    MAX_LOGITS,
    SMALL_VOCABULARY,
    Head,
    entropies_of,
    pieces,
    scaled_log_probs,
    shift,
)

_BLOCK = 64
"""Tokens of a block of a larger vocabulary: only the sums of blocks are added up for every distribution."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Next tokens (B,) with their log-probs and the entropies (B,) of what they were drawn from."""

    token_ids: torch.Tensor
    log_probs: torch.Tensor
    entropies: torch.Tensor


@dataclass(frozen=True, slots=True)
class SharedSampling:
    """Which draw each of B rows uses: every one of S distributions is drawn from `num_ranks` times.

    `draw_index` (B,), all different, indexes the draws (S, num_ranks), flattened: row i uses draw
    `draw_index[i] % num_ranks` of distribution `draw_index[i] // num_ranks`. `SharedPrefixes` has an example.
    """

    draw_index: torch.Tensor
    num_ranks: int


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws by inverting the cumulative distribution at `temperature`; temperature 0 takes the likeliest token.

    Log-probs and entropies are at `temperature`, at 1 where that is 0.
    """

    temperature: float
    generator: torch.Generator

    def draw(
        self, hidden: torch.Tensor, head: Head, vocabulary_size: int, shared: SharedSampling | None = None
    ) -> Draws:
        """Draw one token for each hidden state (S, d), or for each row that shares them, with few logits at a time."""
        num_rows = max(1, MAX_LOGITS // vocabulary_size)
        num_ranks = 1 if shared is None else shared.num_ranks
        chunks = [hidden] if hidden.shape[0] <= num_rows else torch.split(hidden, num_rows)
        parts = [self._draw(head(chunk), num_ranks) for chunk in chunks]
        token_ids, log_probs, entropies = (
            torch.cat(part) if len(parts) > 1 else part[0] for part in zip(*parts, strict=True)
        )
        if shared is None:
            return Draws(token_ids[:, 0], log_probs[:, 0], entropies)
        index = shared.draw_index
        return Draws(token_ids.flatten()[index], log_probs.flatten()[index], entropies[index // num_ranks])

    def _draw(self, logits: torch.Tensor, num_ranks: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if logits.shape[-1] > SMALL_VOCABULARY:  # too many for a running sum in float32
            return self._draw_by_blocks(logits, num_ranks)
        log_probs = scaled_log_probs(logits, self.temperature or 1.0)
        probabilities = log_probs.exp()
        if self.temperature == 0.0:
            token_ids = logits.argmax(-1, keepdim=True).expand(-1, num_ranks)
        else:
            token_ids = self._invert(probabilities, num_ranks)
        return token_ids, log_probs.gather(-1, token_ids), entropies_of(log_probs, probabilities)

    def _invert(self, probabilities: torch.Tensor, num_ranks: int) -> torch.Tensor:
        cumulative = probabilities.cumsum(-1)
        points = self._points((probabilities.shape[0], num_ranks), cumulative)
        # right=True never lands on a token of probability 0; the clamp catches a product that rounds up to the total.
        token_ids = torch.searchsorted(cumulative, points * cumulative[:, -1:], right=True)
        return token_ids.clamp_(max=probabilities.shape[-1] - 1)

    def _draw_by_blocks(self, logits: torch.Tensor, num_ranks: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw a block of tokens, then a token of it: no running sum over the vocabulary, nor a log-prob of each."""
        temperature = self.temperature or 1.0
        parts = [_sum_blocks(piece / temperature) for piece in pieces(logits)]
        largest, sums, products = (torch.cat(part) for part in zip(*parts, strict=True))
        cumulative = sums.cumsum(-1, dtype=torch.float64)
        total = cumulative[:, -1:]
        if self.temperature == 0.0:
            token_ids = logits.argmax(-1, keepdim=True).expand(-1, num_ranks)
        else:
            points = self._points((logits.shape[0], num_ranks), cumulative) * total
            blocks, shares = _find_blocks(cumulative, points)
            columns = blocks[..., None] * _BLOCK + torch.arange(_BLOCK, device=logits.device)
            block_logits = logits.gather(-1, columns.clamp(max=logits.shape[-1] - 1).flatten(1)).view(columns.shape)
            weights = (block_logits / temperature - largest[..., None]).exp().where(columns < logits.shape[-1], 0.0)
            token_ids = blocks * _BLOCK + _find_in_blocks(weights, shares)
        log_probs = logits.gather(-1, token_ids) / temperature - largest - total.log()
        entropies = total.log() - products / total
        return token_ids, log_probs.float(), entropies[:, 0].float()

    def _points(self, shape: tuple[int, int], like: torch.Tensor) -> torch.Tensor:
        return torch.rand(shape, generator=self.generator, device=like.device, dtype=like.dtype)


def _sum_blocks(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the largest l (S, 1) of logits x (S, V), sums of exp(x - l) by block, and that of exp(x - l) (x - l)."""
    largest, shifted = shift(logits)
    weights = shifted.exp()
    products = torch.linalg.vecdot(weights, shifted)
    padded = F.pad(weights, (0, -weights.shape[-1] % _BLOCK)) if weights.shape[-1] % _BLOCK else weights
    return largest, padded.view(logits.shape[0], -1, _BLOCK).sum(-1), products[:, None]


def _find_blocks(cumulative: torch.Tensor, points: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the block (S, ranks) that holds each of `points`, and how far through it the point is, as a share."""
    # right=True never lands on a block of probability 0, if points are below the total; tokens likewise.
    points = torch.minimum(points, _just_below(cumulative[:, -1:]))
    blocks = torch.searchsorted(cumulative, points, right=True)
    begins = cumulative.gather(-1, (blocks - 1).clamp_(min=0)).where(blocks > 0, 0.0)
    return blocks, (points - begins) / (cumulative.gather(-1, blocks) - begins)


def _find_in_blocks(weights: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return which of each block's tokens, of `weights` (S, ranks, tokens), is at its share (S, ranks) of their sum."""
    within = weights.cumsum(-1, dtype=torch.float64)
    total = within[..., -1:]
    # A share is of the sum over blocks, which rounds differently: it may come out as 1.
    return torch.searchsorted(within, torch.minimum(shares[..., None] * total, _just_below(total)), right=True)[..., 0]


def _just_below(values: torch.Tensor) -> torch.Tensor:
    return values.nextafter(torch.zeros_like(values))
