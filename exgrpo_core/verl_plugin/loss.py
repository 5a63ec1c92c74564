"""ExGRPO's loss inside verl's workers: `exgrpo_core.policy_optimization.objective` on verl's micro-batches."""

from typing import Any

import torch
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from exgrpo_core.config import ObjectiveSettings
from exgrpo_core.policy_optimization.objective import LossInputs, LossScale, exgrpo_loss

TOKEN_COLUMNS = ("response_mask", "behavior_log_probs", "advantages", "is_replayed")
"""Columns that the loss reads besides the model's output; `reference_log_probs` with a KL penalty."""
BEHAVIOR_SUM = "behavior_log_prob_sum"


def experience_loss(
    objective: ObjectiveSettings,
    model_output: dict[str, torch.Tensor],
    data: Any,
    dp_group: object = None,  # noqa: ARG001 # verl's signature
) -> tuple[torch.Tensor, dict[str, Metric]]:
    """Return a micro-batch's part of the mini-batch's loss and its sums; verl averages both over data-parallel ranks.

    Raises:
        ValueError: A column did not reach this worker.
    """
    columns = [*TOKEN_COLUMNS, *(["reference_log_probs"] if objective.kl_coefficient > 0.0 else [])]
    missing = [name for name in columns if name not in data.keys()]  # noqa: SIM118 # a TensorDict
    if missing:
        raise ValueError(f"loss: the columns {', '.join(missing)} did not reach the worker.")
    padded = data.select(*columns).to_padded_tensor()
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    entropies = no_padding_2_padding(model_output["entropy"], data) if "entropy" in model_output else None
    mask = padded["response_mask"].bool()
    rows = torch.arange(mask.shape[0], device=mask.device)[:, None].expand_as(mask)
    inputs = LossInputs(
        log_probs=log_probs.float(),
        behavior_log_probs=padded["behavior_log_probs"],
        advantages=padded["advantages"],
        is_replayed=padded["is_replayed"].bool(),
        response_mask=mask,
        trajectory_index=rows,
        entropies=entropies,
        reference_log_probs=padded["reference_log_probs"] if objective.kl_coefficient > 0.0 else None,
    )
    outputs = exgrpo_loss(inputs, objective, LossScale(int(data["num_trajectories"]), int(data["num_tokens"])))
    num_ranks = int(data["dp_size"])
    sums = outputs.sums | {BEHAVIOR_SUM: padded["behavior_log_probs"].double()[mask].sum()}
    return outputs.loss * num_ranks, {name: _metric(name, value, num_ranks) for name, value in sums.items()}


def _metric(name: str, value: torch.Tensor, num_ranks: int) -> Metric:
    """Return a statistic such that verl's mean over ranks and sum over micro-batches give the sum over all tokens."""
    if name.startswith("max_"):
        return Metric(AggregationType.MAX, float(value))
    return Metric(AggregationType.SUM, float(value) * num_ranks)
