"""What goes into an optimizer step and what comes out, both checked against each other."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from exgrpo_core.config import ObjectiveSettings
from exgrpo_core.errors import EngineError
from exgrpo_core.policy_optimization.mixed_batch import MiniBatch, TrainingRow, rows_with_gradient
from exgrpo_core.policy_optimization.update_metrics import UpdateSums
from exgrpo_core.verl_plugin.loss import BEHAVIOR_SUM
from exgrpo_core.verl_plugin.rows import TokenRow

RELATIVE_TOLERANCE = 1e-4
SUM_NAMES = (
    "policy", "entropy_bonus", "kl", "total", "num_fresh", "fresh", "max_fresh", "clipped", "num_replayed", "replayed",
    "replayed_squared", "max_replayed", "shaped",
)  # fmt: skip


def update_rows(mini_batch: MiniBatch, objective: ObjectiveSettings) -> list[TokenRow]:
    """Return the rows that have a gradient, with the columns of the loss; at least one row, which may count nothing."""
    rows = [_token_row(row) for row in rows_with_gradient(mini_batch, objective)]
    return rows or [_token_row(mini_batch.rows[0]).without_loss()]


def _token_row(row: TrainingRow) -> TokenRow:
    num_tokens = row.token_ids.size
    columns = {
        "behavior_log_probs": torch.from_numpy(row.behavior_log_probs.astype(np.float32)),
        "advantages": torch.from_numpy(row.token_advantages),
        "is_replayed": torch.full((num_tokens,), int(row.is_replayed), dtype=torch.int64),
    }
    return TokenRow(row.prompt_ids, row.token_ids, columns)


class UpdateTally(UpdateSums):
    """What the mini-batches of one update add up."""

    def add(self, what: str, rows: Sequence[TokenRow], returned: Mapping[str, float]) -> None:
        """Add what the workers returned for `rows`.

        Raises:
            EngineError: Loss or gradient is not finite and not skipped, or the workers saw other tokens than were sent.
        """
        _check_arrival(what, rows, returned)
        faulty = [name for name in ("total", "grad_norm") if not math.isfinite(returned[name])]
        if faulty and self.skips_non_finite:
            self.num_skipped += 1
            return
        if faulty:
            raise EngineError(
                f"{what}: {faulty[0]} is {returned[faulty[0]]}, so the update is not to be trusted; resume from a "
                "checkpoint with a lower learning rate, or set optim.non_finite: skip."
            )
        self.sums.append({name: torch.tensor(float(returned[name])) for name in SUM_NAMES})
        self.gradient_norms.append(float(returned["grad_norm"]))
        self.num_tokens += int(returned["num_fresh"] + returned["num_replayed"])


def _check_arrival(what: str, rows: Sequence[TokenRow], returned: Mapping[str, float]) -> None:
    """Compare what the losses saw, summed over all workers, with what the driver sent."""
    num_replayed = sum(int(row.counted("is_replayed").sum()) for row in rows)
    expected = {
        "num_fresh": sum(row.counted("is_replayed").numel() for row in rows) - num_replayed,
        "num_replayed": num_replayed,
        BEHAVIOR_SUM: sum(float(row.counted("behavior_log_probs").double().sum()) for row in rows),
    }
    for name, value in expected.items():
        if not math.isclose(returned[name], value, rel_tol=RELATIVE_TOLERANCE, abs_tol=RELATIVE_TOLERANCE):
            raise EngineError(
                f"{what}: the workers' losses saw {name} = {returned[name]}, expected {value} of {len(rows)} rows; the "
                "replay mask or behavior log-probs did not reach the loss."
            )
