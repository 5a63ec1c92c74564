"""What goes into an optimizer step and what comes out, both checked against each other."""

import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from exgrpo_core.errors import EngineError
from exgrpo_core.policy_optimization.mixed_batch import TrainingRow
from exgrpo_core.policy_optimization.objective import UpdateSums
from exgrpo_core.verl_plugin.kept_rows import KeptRows
from exgrpo_core.verl_plugin.loss import BEHAVIOR_SUM
from exgrpo_core.verl_plugin.rows import QueuedRow, TokenRow

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

    def add(self, what: str, rows: Sequence[TrainingRow], returned: Mapping[str, float]) -> None:
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
