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
        log_probs = scaled_log_probs(logits, self.temperature or 1.0)
        probabilities = log_probs.exp()
        if self.temperature == 0.0:
            token_ids = logits.argmax(-1, keepdim=True).expand(-1, num_ranks)
        else:
            token_ids = self._invert(probabilities, num_ranks)
        return token_ids, log_probs.gather(-1, token_ids), entropies_of(log_probs, probabilities)

    def _invert(self, probabilities: torch.Tensor, num_ranks: int) -> torch.Tensor:
        size = probabilities.shape[-1]
        dtype = torch.float32 if size <= _EXACT_VOCABULARY else torch.float64
        cumulative = probabilities.cumsum(-1, dtype=dtype)
        shape = (probabilities.shape[0], num_ranks)
        points = torch.rand(shape, generator=self.generator, device=probabilities.device, dtype=dtype)
        # right=True never lands on a token of probability 0; the clamp catches a product that rounds up to the total.
        token_ids = torch.searchsorted(cumulative, points * cumulative[:, -1:], right=True)
        return token_ids.clamp_(max=size - 1)
