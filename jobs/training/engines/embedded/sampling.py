"""What the output embedding makes of hidden states, in chunks where V is large: log-probs, entropies, next tokens."""

from collections.abc import Callable
from dataclasses import dataclass, replace
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

    Log-probs and entropies are at `temperature`, at 1 where that is 0. With `points` (B, T), in [0, 1), row b's token t
    is at its own point of its distribution, whichever rows are computed with it.
    """

    temperature: float
    generator: torch.Generator
    points: torch.Tensor | None = None

    def of_rows(self, rows: slice | torch.Tensor, step: int | None = None) -> "Sampler":
        """Return the sampler of some of the B rows, for all tokens or for one step."""
        if self.points is None:
            return self
        return replace(self, points=self.points[rows] if step is None else self.points[rows, step])

    def draw(
        self, hidden: torch.Tensor, head: Head, vocabulary_size: int, shared: SharedSampling | None = None
    ) -> Draws:
        """Draw one token for each hidden state (S, d), or for each row that shares them, with few logits at a time."""
        num_rows = max(1, MAX_LOGITS // vocabulary_size)
        num_ranks = 1 if shared is None else shared.num_ranks
        chunks = [hidden] if hidden.shape[0] <= num_rows else torch.split(hidden, num_rows)
        points = self._given_points(hidden.shape[0], shared)
        given = [None] * len(chunks) if points is None else torch.split(points, num_rows)
        parts = [self._draw(head(chunk), num_ranks, part) for chunk, part in zip(chunks, given, strict=True)]
        token_ids, log_probs, entropies = (
            torch.cat(part) if len(parts) > 1 else part[0] for part in zip(*parts, strict=True)
        )
        if shared is None:
            return Draws(token_ids[:, 0], log_probs[:, 0], entropies)
        index = shared.draw_index
        return Draws(token_ids.flatten()[index], log_probs.flatten()[index], entropies[index // num_ranks])

    def _given_points(self, num_distributions: int, shared: SharedSampling | None) -> torch.Tensor | None:
        """Return the rows' own points in the order (S, num_ranks) of draws, any number where no row uses a draw."""
        if self.points is None or shared is None:
            return None if self.points is None else self.points[:, None]
        ordered = self.points.new_zeros(num_distributions * shared.num_ranks)
        ordered[shared.draw_index] = self.points
        return ordered.view(num_distributions, shared.num_ranks)

    def _draw(
        self, logits: torch.Tensor, num_ranks: int, given: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        if logits.shape[-1] > SMALL_VOCABULARY:  # too many for a running sum in float32
            return self._draw_by_blocks(logits, num_ranks, given)
        log_probs = scaled_log_probs(logits, self.temperature or 1.0)
        probabilities = log_probs.exp()
        if self.temperature == 0.0:
            token_ids = logits.argmax(-1, keepdim=True).expand(-1, num_ranks)
        else:
            token_ids = self._invert(probabilities, num_ranks, given)
        return token_ids, log_probs.gather(-1, token_ids), entropies_of(log_probs, probabilities)

    def _invert(self, probabilities: torch.Tensor, num_ranks: int, given: torch.Tensor | None) -> torch.Tensor:
        cumulative = probabilities.cumsum(-1)
        points = self._points((probabilities.shape[0], num_ranks), cumulative, given)
        # right=True never lands on a token of probability 0; the clamp catches a product that rounds up to the total.
        token_ids = torch.searchsorted(cumulative, points * cumulative[:, -1:], right=True)
        return token_ids.clamp_(max=probabilities.shape[-1] - 1)

    def _draw_by_blocks(
        self, logits: torch.Tensor, num_ranks: int, given: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Draw a block of tokens, then a token of it: no running sum over the vocabulary, nor a log-prob of each."""
        temperature = self.temperature or 1.0
        parts = [_sum_blocks(piece / temperature) for piece in pieces(logits)]
        largest, sums, products = (torch.cat(part) for part in zip(*parts, strict=True))
        cumulative = sums.cumsum(-1, dtype=torch.float64)
        total = cumulative[:, -1:]
        if self.temperature == 0.0:
            token_ids = logits.argmax(-1, keepdim=True).expand(-1, num_ranks)
        else:
            points = self._points((logits.shape[0], num_ranks), cumulative, given) * total
            blocks, shares = _find_blocks(cumulative, points)
            columns = blocks[..., None] * _BLOCK + torch.arange(_BLOCK, device=logits.device)
            block_logits = logits.gather(-1, columns.clamp(max=logits.shape[-1] - 1).flatten(1)).view(columns.shape)
            weights = (block_logits / temperature - largest[..., None]).exp().where(columns < logits.shape[-1], 0.0)
            token_ids = (blocks * _BLOCK + _find_in_blocks(weights, shares)).clamp_(max=logits.shape[-1] - 1)
        log_probs = logits.gather(-1, token_ids) / temperature - largest - total.log()
        entropies = total.log() - products / total
        return token_ids, log_probs.float(), entropies[:, 0].float()

    def _points(self, shape: tuple[int, int], like: torch.Tensor, given: torch.Tensor | None) -> torch.Tensor:
        if given is not None:
            return given.to(like.dtype)
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
    # The clamps here and below catch NaN, from logits too large for float32; the log-probs, NaN too, end the run.
    blocks = torch.searchsorted(cumulative, points, right=True).clamp_(max=cumulative.shape[-1] - 1)
    begins = cumulative.gather(-1, (blocks - 1).clamp_(min=0)).where(blocks > 0, 0.0)
    return blocks, (points - begins) / (cumulative.gather(-1, blocks) - begins)


def _find_in_blocks(weights: torch.Tensor, shares: torch.Tensor) -> torch.Tensor:
    """Return which of each block's tokens, of `weights` (S, ranks, tokens), is at its share (S, ranks) of their sum."""
    within = weights.cumsum(-1, dtype=torch.float64)
    total = within[..., -1:]
    # A share is of the sum over blocks, which rounds differently: it may come out as 1.
    tokens = torch.searchsorted(within, torch.minimum(shares[..., None] * total, _just_below(total)), right=True)
    return tokens[..., 0].clamp_(max=_BLOCK - 1)


def _just_below(values: torch.Tensor) -> torch.Tensor:
    return values.nextafter(torch.zeros_like(values))
