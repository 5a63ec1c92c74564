"""Drawing the next tokens from logits."""

from dataclasses import dataclass

import torch

from jobs.engines.embedded.vocabulary import MAX_LOGITS, Head, entropies_of, scaled_log_probs

_EXACT_VOCABULARY = 4096
"""Above this many tokens a float32 running sum of probabilities is too coarse for rare ones."""


@dataclass(frozen=True, slots=True)
class Draws:
    """Next tokens (B,) with their log-probs and the entropies (B,) of what they were drawn from."""

    token_ids: torch.Tensor
    log_probs: torch.Tensor
    entropies: torch.Tensor


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws by inverting the cumulative distribution at `temperature`; temperature 0 takes the likeliest token.

    Log-probs and entropies are at `temperature`, at 1 where that is 0.
    """

    temperature: float
    generator: torch.Generator

    def draw(self, hidden: torch.Tensor, head: Head, vocabulary_size: int) -> Draws:
        """Draw one token a row of hidden states (B, d), with few logits at a time."""
        num_rows = max(1, MAX_LOGITS // vocabulary_size)
        if hidden.shape[0] <= num_rows:
            return self._draw(head(hidden))
        parts = [self._draw(head(chunk)) for chunk in torch.split(hidden, num_rows)]
        return Draws(
            torch.cat([part.token_ids for part in parts]),
            torch.cat([part.log_probs for part in parts]),
            torch.cat([part.entropies for part in parts]),
        )

    def _draw(self, logits: torch.Tensor) -> Draws:
        log_probs = scaled_log_probs(logits, self.temperature or 1.0)
        token_ids = logits.argmax(-1) if self.temperature == 0.0 else self._invert(log_probs)
        return Draws(token_ids, log_probs.gather(-1, token_ids[:, None])[:, 0], entropies_of(log_probs))

    def _invert(self, log_probs: torch.Tensor) -> torch.Tensor:
        size = log_probs.shape[-1]
        dtype = torch.float32 if size <= _EXACT_VOCABULARY else torch.float64
        cumulative = log_probs.exp().cumsum(-1, dtype=dtype)
        shape = (log_probs.shape[0], 1)
        points = torch.rand(shape, generator=self.generator, device=log_probs.device, dtype=dtype)
        # right=True never lands on a token of probability 0; the clamp catches a product that rounds up to the total.
        found = torch.searchsorted(cumulative, points * cumulative[:, -1:], right=True)
        return found[:, 0].clamp_(max=size - 1)
