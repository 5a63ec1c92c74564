"""The mixed objective of Eq. ExGRPO, as a loss on any micro-batch of whole trajectories."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import SupportsFloat

import numpy as np
import torch

from exgrpo_core.config import LossAggregation, clip_limits
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.importance import MAX_LOG_RATIO, importance_ratios
from exgrpo_core.policy_optimization.mixed_batch import TrainingRow
from exgrpo_core.types import SEEN_VALUES, Float32Array, TokenRatios


@dataclass(frozen=True, slots=True)
class LossInputs:
    """Token tensors of one micro-batch, all of one shape: packed (N,) or padded (B, T).

    `log_probs`, `entropies` carry gradients; `response_mask` is True where a token counts; `advantages` and
    `is_replayed` are spread over tokens. `trajectory_index` (int64) numbers the micro-batch's trajectories and is
    read by `token_mean` aggregation; `entropies` by the entropy bonus; `reference_log_probs` by the KL penalty.
    """

    log_probs: torch.Tensor
    behavior_log_probs: torch.Tensor
    advantages: torch.Tensor
    is_replayed: torch.Tensor
    response_mask: torch.Tensor
    trajectory_index: torch.Tensor
    entropies: torch.Tensor | None = None
    reference_log_probs: torch.Tensor | None = None


def pack_inputs(
    rows: Sequence[TrainingRow],
    log_probs: torch.Tensor,
    entropies: torch.Tensor | None = None,
    reference_log_probs: torch.Tensor | None = None,
) -> LossInputs:
    """Return the tensors of whole rows, perhaps of none, packed (N,), on the device of `log_probs`."""
    lengths = np.array([row.token_ids.size for row in rows], dtype=np.int64)
    nothing = np.empty(0, dtype=np.float32)

    def on_device(values: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(values).to(log_probs.device)

    return LossInputs(
        log_probs=log_probs,
        behavior_log_probs=on_device(np.concatenate([nothing, *(row.behavior_log_probs for row in rows)])),
        advantages=on_device(np.concatenate([nothing, *(row.token_advantages for row in rows)])),
        is_replayed=on_device(np.repeat(np.array([row.is_replayed for row in rows], dtype=np.bool_), lengths)),
        response_mask=torch.ones_like(log_probs, dtype=torch.bool),
        trajectory_index=on_device(np.repeat(np.arange(len(rows), dtype=np.int64), lengths)),
        entropies=entropies,
        reference_log_probs=reference_log_probs,
    )


def split_seen(inputs: LossInputs, lengths: Sequence[int]) -> list[dict[str, Float32Array]]:
    """Return what the loss read of the tokens of each trajectory, of so many tokens: `SEEN_VALUES` by name, (T,)."""
    parts: dict[str, Sequence[Float32Array]] = {}
    for name in SEEN_VALUES:
        tensor = getattr(inputs, name.removeprefix("update_"))
        if tensor is not None:
            array = tensor.detach().float().cpu().numpy()
            parts[name] = array if array.ndim == 2 else np.split(array, np.cumsum(lengths)[:-1])
    return [{name: rows[i][:length] for name, rows in parts.items()} for i, length in enumerate(lengths)]


@dataclass(frozen=True, slots=True)
class MiniBatchSizes:
    """Sizes of the whole mini-batch, so that the losses of its micro-batches add up to its loss."""

    num_trajectories: int
    num_tokens: int


@dataclass(frozen=True, slots=True)
class LossOutputs:
    """The loss to differentiate, and additive statistics (those named `max_*` merge by maximum)."""

    loss: torch.Tensor
    sums: dict[str, torch.Tensor]


def exgrpo_loss(inputs: LossInputs, objective: ObjectiveSettings, scale: MiniBatchSizes) -> LossOutputs:
    """Return this micro-batch's part of the mini-batch's loss: minus Eq. ExGRPO, entropy bonus, KL penalty.

    Fresh tokens contribute w A (with `fresh_objective`'s weight where `clips_fresh`), replayed tokens f(w*) A, with the
    correction's f. Token terms add up per trajectory as `objective.aggregation` says, then average over the
    mini-batch's trajectories; with rho of whole experiential groups in each mini-batch that is Eq. ExGRPO's rho.

    Raises:
        ValueError: Shapes differ, or the entropy bonus or KL penalty lacks its tensor.
    """
    _check(inputs, objective)
    mask = inputs.response_mask
    # Values under the mask may be anything: set them to 0 before exp, so that no NaN reaches a gradient.
    log_probs = _at_least_float32(inputs.log_probs).masked_fill(~mask, 0.0)
    behavior = inputs.behavior_log_probs.masked_fill(~mask, 0.0)
    ratios = importance_ratios(log_probs, behavior)
    tokens = TokenRatios(ratios, inputs.advantages, mask, inputs.trajectory_index)
    fresh_weights = objective.fresh_objective.weights(tokens) if objective.clips_fresh else ratios
    shaped = objective.correction.weights(tokens)
    weights = torch.where(inputs.is_replayed, shaped, fresh_weights)
    token_objective = (weights * inputs.advantages).masked_fill(~mask, 0.0)
    policy_loss = (
        -objective.policy_loss_factor * _sum_by_trajectory(token_objective, inputs, objective) / scale.num_trajectories
    )

    loss = policy_loss
    entropy_bonus = torch.zeros_like(policy_loss)
    if inputs.entropies is not None and objective.entropy_coefficient > 0.0:
        entropy_bonus = objective.entropy_coefficient * inputs.entropies[mask].sum() / scale.num_tokens
        loss = loss - entropy_bonus
    kl_penalty = torch.zeros_like(policy_loss)
    if inputs.reference_log_probs is not None and objective.kl_coefficient > 0.0:
        kl_penalty = (
            objective.kl_coefficient * _k3(log_probs, inputs.reference_log_probs)[mask].sum() / scale.num_tokens
        )
        loss = loss + kl_penalty

    parts = {"policy": policy_loss, "entropy_bonus": entropy_bonus, "kl": kl_penalty, "total": loss}
    sums = {name: value.detach() for name, value in parts.items()}
    sums |= _ratio_sums(ratios.detach(), shaped.detach(), inputs, objective)
    return LossOutputs(loss, sums)


def merge_sums(all_sums: Iterable[Mapping[str, SupportsFloat]]) -> dict[str, float]:
    """Return the statistics of several micro-batches or mini-batches as those of one."""
    merged: dict[str, float] = {}
    for sums in all_sums:
        for name, tensor in sums.items():
            value = float(tensor)
            before = merged.get(name, 0.0)
            merged[name] = max(before, value) if name.startswith("max_") else before + value
    return merged


def summarize_sums(all_sums: Iterable[Mapping[str, SupportsFloat]], num_mini_batches: int) -> dict[str, float]:
    """Merge statistics of all micro-batches of a step into metrics named as in `step_report.METRICS`.

    Losses are means over the step's mini-batches; ratios are over all its tokens.
    """
    merged = merge_sums(all_sums)
    metrics = {f"loss/{name}": merged[name] / num_mini_batches for name in ("policy", "entropy_bonus", "kl", "total")}
    if merged["num_fresh"]:
        metrics["ratio/fresh_mean"] = merged["fresh"] / merged["num_fresh"]
        metrics["ratio/fresh_max"] = merged["max_fresh"]
        metrics["ratio/clip_share"] = merged["clipped"] / merged["num_fresh"]
    if merged["num_replayed"]:
        count = merged["num_replayed"]
        metrics["ratio/replayed_mean"] = merged["replayed"] / count
        metrics["ratio/replayed_max"] = merged["max_replayed"]
        metrics["ratio/replayed_ess"] = merged["replayed"] ** 2 / (count * merged["replayed_squared"])
        metrics["ratio/shaped_mean"] = merged["shaped"] / count
    return metrics


def _check(inputs: LossInputs, objective: ObjectiveSettings) -> None:
    shape = inputs.log_probs.shape
    for name in ("behavior_log_probs", "advantages", "is_replayed", "response_mask", "trajectory_index"):
        if getattr(inputs, name).shape != shape:
            raise ValueError(f"{name}: expected shape {tuple(shape)}, got {tuple(getattr(inputs, name).shape)}.")
    if objective.entropy_coefficient > 0.0 and inputs.entropies is None:
        raise ValueError("entropies: expected a tensor, since entropy_coefficient is above 0.")
    if objective.kl_coefficient > 0.0 and inputs.reference_log_probs is None:
        raise ValueError("reference_log_probs: expected a tensor, since kl_coefficient is above 0.")


def _sum_by_trajectory(values: torch.Tensor, inputs: LossInputs, objective: ObjectiveSettings) -> torch.Tensor:
    if objective.aggregation is LossAggregation.MAX_LENGTH:
        return values.sum() / objective.max_response_tokens
    index = inputs.trajectory_index.reshape(-1)
    counts = torch.bincount(index, weights=inputs.response_mask.reshape(-1).to(values.dtype)).to(values.dtype)
    totals = torch.zeros_like(counts).index_add(0, index, values.reshape(-1))
    return (totals / counts.clamp(min=1.0)).sum()


def _k3(log_probs: torch.Tensor, reference_log_probs: torch.Tensor) -> torch.Tensor:
    """Unbiased, non-negative estimate of KL(pi_theta || pi_reference) per sampled token."""
    gap = (reference_log_probs - log_probs).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO)
    return gap.exp() - gap - 1.0


def _at_least_float32(values: torch.Tensor) -> torch.Tensor:
    """Half precision would round a ratio near 1 to steps of .4%."""
    return values.to(torch.promote_types(values.dtype, torch.float32))


def _ratio_sums(
    ratios: torch.Tensor, shaped: torch.Tensor, inputs: LossInputs, objective: ObjectiveSettings
) -> dict[str, torch.Tensor]:
    replayed_mask = inputs.response_mask & inputs.is_replayed
    fresh_mask = inputs.response_mask & ~inputs.is_replayed
    fresh, replayed = ratios[fresh_mask], ratios[replayed_mask]
    advantages = inputs.advantages[fresh_mask]
    low, high = clip_limits(objective.clip_epsilon, objective.clip_epsilon_high)
    is_clipped = ((advantages > 0) & (fresh > high)) | ((advantages < 0) & (fresh < low))
    zero = ratios.new_zeros(())
    return {
        "num_fresh": zero + fresh.numel(),
        "fresh": fresh.sum(),
        "max_fresh": fresh.max() if fresh.numel() else zero,
        "clipped": is_clipped.sum() if objective.clips_fresh else zero,
        "num_replayed": zero + replayed.numel(),
        "replayed": replayed.sum(),
        "replayed_squared": replayed.square().sum(),
        "max_replayed": replayed.max() if replayed.numel() else zero,
        "shaped": shaped[replayed_mask].sum(),
    }


@dataclass
class UpdateSums:
    """What the mini-batches of one update add up, each with one gradient norm unless it is skipped."""

    skips_non_finite: bool = False
    num_skipped: int = 0
    sums: list[dict[str, float]] = field(default_factory=list)
    gradient_norms: list[float] = field(default_factory=list)
    num_tokens: int = 0

    def metrics(self) -> dict[str, float]:
        """Return metrics named as in `step_report.METRICS`; of skipped mini-batches their number alone."""
        skipped = {"optim/num_skipped": float(self.num_skipped)} if self.skips_non_finite else {}
        if not self.gradient_norms:
            return skipped
        metrics = skipped | summarize_sums(self.sums, len(self.gradient_norms))
        metrics["optim/gradient_norm"] = sum(self.gradient_norms) / len(self.gradient_norms)
        metrics["optim/num_updated_tokens"] = float(self.num_tokens)
        return metrics
