"""An optimizer step: the loss in verl's workers, what goes into it and what comes out, each checked against the other.

The loss is `exgrpo_core.policy_optimization.objective` on verl's micro-batches.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from verl.utils.metric import AggregationType, Metric
from verl.workers.utils.padding import no_padding_2_padding

from exgrpo_core.errors import EngineError
from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.policy_optimization.mixed_batch import TrainingRow
from exgrpo_core.policy_optimization.objective import LossInputs, MiniBatchSizes, UpdateSums, exgrpo_loss, split_seen
from exgrpo_core.types import Float32Array
from exgrpo_core.verl_plugin.rows import LOG_PROBS, STORED_LOG_PROBS, KeptRows, QueuedRow, TokenRow

DECIDED_COLUMNS = ("advantages", "is_replayed", "is_behavior_stored")
"""Columns with one value a row; `advantages` may have one a response token instead."""
BEHAVIOR_SUM = "behavior_log_prob_sum"
ROW = "row"
"""Column with the place of a row in its block: verl's micro-batches have another order."""


def decided_columns(objective: ObjectiveSettings) -> list[str]:
    """Return the columns of an update's rows that the driver decides."""
    return [*DECIDED_COLUMNS, *(["reference_log_probs"] if objective.kl_coefficient > 0.0 else [])]


@dataclass
class ExperienceLoss:
    """The loss of verl's workers, each of which has one of its own."""

    objective: ObjectiveSettings
    keeps_seen: bool = False
    seen: dict[int, dict[str, Float32Array]] = field(default_factory=dict)
    """With `keeps_seen`, what it read of the tokens of the rows of a block, by their place in it."""

    def __call__(
        self,
        model_output: dict[str, torch.Tensor],
        data: Any,
        dp_group: object = None,  # noqa: ARG002 # verl's signature
    ) -> tuple[torch.Tensor, dict[str, Metric]]:
        """Return a micro-batch's part of the mini-batch's loss and its sums; verl averages both over ranks.

        Raises:
            ValueError: A column did not reach this worker.
        """
        inputs = _loss_inputs(self.objective, model_output, data)
        if self.keeps_seen:
            lengths = [len(row) for row in data["response_mask"].unbind()]
            self.seen |= zip(torch.cat(data[ROW].unbind()).tolist(), split_seen(inputs, lengths), strict=True)
        sizes = MiniBatchSizes(int(data["num_trajectories"]), int(data["num_tokens"]))
        outputs = exgrpo_loss(inputs, self.objective, sizes)
        num_ranks = int(data["dp_size"])
        sums = outputs.sums | {BEHAVIOR_SUM: inputs.behavior_log_probs.double()[inputs.response_mask].sum()}
        return outputs.loss * num_ranks, {name: _metric(name, value, num_ranks) for name, value in sums.items()}


def _loss_inputs(objective: ObjectiveSettings, model_output: Mapping[str, torch.Tensor], data: Any) -> LossInputs:
    columns = ["response_mask", LOG_PROBS, STORED_LOG_PROBS, *decided_columns(objective)]
    missing = [name for name in columns if name not in data.keys()]  # noqa: SIM118 # a TensorDict
    if missing:
        raise ValueError(f"loss: the columns {', '.join(missing)} did not reach the worker.")
    padded = data.select(*(name for name in columns if name != LOG_PROBS)).to_padded_tensor()
    log_probs = no_padding_2_padding(model_output["log_probs"], data)
    mask = padded["response_mask"].bool()
    is_replayed = padded["is_replayed"].bool().expand_as(mask)
    old_log_probs = no_padding_2_padding(data[LOG_PROBS], data).float()
    # Rounding of the logarithm may give a number just above 0, which a fresh row has cut off.
    old_log_probs = torch.where(is_replayed, old_log_probs, old_log_probs.clamp(max=0.0))
    return LossInputs(
        log_probs=log_probs.float(),
        behavior_log_probs=torch.where(padded["is_behavior_stored"].bool(), padded[STORED_LOG_PROBS], old_log_probs),
        advantages=padded["advantages"].expand_as(mask),
        is_replayed=is_replayed,
        response_mask=mask,
        trajectory_index=torch.arange(mask.shape[0], device=mask.device)[:, None].expand_as(mask),
        entropies=no_padding_2_padding(model_output["entropy"], data) if "entropy" in model_output else None,
        reference_log_probs=padded["reference_log_probs"] if objective.kl_coefficient > 0.0 else None,
    )


def _metric(name: str, value: torch.Tensor, num_ranks: int) -> Metric:
    """Return a statistic such that verl's mean over ranks and sum over micro-batches give the sum over all tokens."""
    if name.startswith("max_"):
        return Metric(AggregationType.MAX, float(value))
    return Metric(AggregationType.SUM, float(value) * num_ranks)


RELATIVE_TOLERANCE = 1e-4
SUM_NAMES = (
    "policy", "entropy_bonus", "kl", "total", "num_fresh", "fresh", "max_fresh", "clipped", "num_replayed", "replayed",
    "replayed_squared", "max_replayed", "shaped",
)  # fmt: skip

_FLAGS = np.array([[0.0], [1.0]], dtype=np.float32)


def update_rows(rows: Sequence[TrainingRow], kept: KeptRows) -> list[TokenRow | QueuedRow]:
    """Return rows with the columns of the loss: of rows that are in TransferQueue the few that the driver decides."""
    has_token_advantages = any(row.weights is not None for row in rows)
    return [_with_columns(row, kept.find(row), has_token_advantages) for row in rows]


def _with_columns(row: TrainingRow, queued: QueuedRow | None, has_token_advantages: bool) -> TokenRow | QueuedRow:
    advantages = row.token_advantages if has_token_advantages else np.array([row.advantage], dtype=np.float32)
    columns = {
        "advantages": advantages,
        "is_replayed": _FLAGS[int(row.is_replayed)],
        "is_behavior_stored": _FLAGS[int(queued is None)],
    }
    if queued is None:
        return TokenRow(row.prompt_ids, row.token_ids, row.behavior_log_probs, columns)
    return QueuedRow(queued.key, queued.num_tokens, columns)


class UpdateTally(UpdateSums):
    """What the mini-batches of one update add up."""

    def add(self, what: str, rows: Sequence[TrainingRow], returned: Mapping[str, float]) -> bool:
        """Add what the workers returned for `rows`, and return whether the mini-batch was applied.

        Raises:
            EngineError: Loss or gradient is not finite and not skipped, or the workers saw other tokens than were sent.
        """
        _check_arrival(what, rows, returned)
        faulty = [name for name in ("total", "grad_norm") if not math.isfinite(returned[name])]
        if faulty and self.skips_non_finite:
            self.num_skipped += 1
            return False
        if faulty:
            raise EngineError(
                f"{what}: {faulty[0]} is {returned[faulty[0]]}, so the update is not to be trusted; branch from a "
                "checkpoint with a lower learning rate, or set optim.non_finite: skip."
            )
        self.sums.append({name: float(returned[name]) for name in SUM_NAMES})
        self.gradient_norms.append(float(returned["grad_norm"]))
        self.num_tokens += int(returned["num_fresh"] + returned["num_replayed"])
        return True


def _check_arrival(what: str, rows: Sequence[TrainingRow], returned: Mapping[str, float]) -> None:
    """Compare what the losses saw, summed over all workers, with what the driver sent."""
    num_tokens = dict.fromkeys((False, True), 0)
    for row in rows:
        num_tokens[row.is_replayed] += row.token_ids.size
    expected = {
        "num_fresh": num_tokens[False],
        "num_replayed": num_tokens[True],
        BEHAVIOR_SUM: sum(float(row.behavior_log_probs.sum(dtype=np.float64)) for row in rows),
    }
    for name, value in expected.items():
        if not math.isclose(returned[name], value, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE):
            raise EngineError(
                f"{what}: the workers' losses saw {name} = {returned[name]}, expected {value} of {len(rows)} rows; the "
                "replay mask or behavior log-probs did not reach the loss."
            )
