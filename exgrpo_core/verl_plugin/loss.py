"""ExGRPO's loss inside verl's workers: `exgrpo_core.policy_optimization.objective` on verl's micro-batches."""

from typing import Any

import torch
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from exgrpo_core.methods.run_strategies import ObjectiveSettings
from exgrpo_core.policy_optimization.objective import LossInputs, LossScale, exgrpo_loss
from exgrpo_core.verl_plugin.rows import LOG_PROBS, STORED_LOG_PROBS

DECIDED_COLUMNS = ("advantages", "is_replayed", "is_behavior_stored")
"""Columns with one value a row; `advantages` may have one a response token instead."""
BEHAVIOR_SUM = "behavior_log_prob_sum"


def decided_columns(objective: ObjectiveSettings) -> list[str]:
    """Return the columns of an update's rows that the driver decides."""
    return [*DECIDED_COLUMNS, *(["reference_log_probs"] if objective.kl_coefficient > 0.0 else [])]


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
    columns = ["response_mask", LOG_PROBS, STORED_LOG_PROBS, *decided_columns(objective)]
    missing = [name for name in columns if name not in data.keys()]  # noqa: SIM118 # a TensorDict
    if missing:
        raise ValueError(f"loss: the columns {', '.join(missing)} did not reach the worker.")
    padded = data.select(*(name for name in columns if name != LOG_PROBS)).to_padded_tensor()
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    entropies = no_padding_2_padding(model_output["entropy"], data) if "entropy" in model_output else None
    mask = padded["response_mask"].bool()
    rows = torch.arange(mask.shape[0], device=mask.device)[:, None].expand_as(mask)
    is_replayed = padded["is_replayed"].bool().expand_as(mask)
    old_log_probs = no_padding_2_padding(data[LOG_PROBS], data).float()
    # Rounding of the logarithm may give a number just above 0, which a fresh row has cut off.
    old_log_probs = torch.where(is_replayed, old_log_probs, old_log_probs.clamp(max=0.0))
    behavior = torch.where(padded["is_behavior_stored"].bool(), padded[STORED_LOG_PROBS], old_log_probs)
    inputs = LossInputs(
        log_probs=log_probs.float(),
        behavior_log_probs=behavior,
        advantages=padded["advantages"].expand_as(mask),
        is_replayed=is_replayed,
        response_mask=mask,
        trajectory_index=rows,
        entropies=entropies,
        reference_log_probs=padded["reference_log_probs"] if objective.kl_coefficient > 0.0 else None,
    )
    outputs = exgrpo_loss(inputs, objective, LossScale(int(data["num_trajectories"]), int(data["num_tokens"])))
    num_ranks = int(data["dp_size"])
    sums = outputs.sums | {BEHAVIOR_SUM: behavior.double()[mask].sum()}
    return outputs.loss * num_ranks, {name: _metric(name, value, num_ranks) for name, value in sums.items()}


def _metric(name: str, value: torch.Tensor, num_ranks: int) -> Metric:
    """Return a statistic such that verl's mean over ranks and sum over micro-batches give the sum over all tokens."""
    if name.startswith("max_"):
        return Metric(AggregationType.MAX, float(value))
    return Metric(AggregationType.SUM, float(value) * num_ranks)
