"""Rows of tokens: those that agent loops put into TransferQueue, and those that the driver has.

What agent loops put there stays under its key: it is scored and trained where it is; `KeptRows` finds it again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from exgrpo_core.errors import EngineError
from exgrpo_core.experience_management.storage.segments import checksums
from exgrpo_core.policy_optimization.mixed_batch import TrainingRow
from exgrpo_core.types import Float32Array, Int32Array
from exgrpo_core.verl_plugin.rollout_queue import clear_rows

CHECKSUMS = "checksums"
"""Of each row's token ids, by which those of two processes are compared."""
LOG_PROBS, ENTROPIES = "log_probs", "entropy"
"""Columns that workers write when they score, one value a token of prompt and response."""
STORED_LOG_PROBS = "rollout_log_probs"
"""Log-probs of whatever drew the response, one a response token: the sampler, or the policy of a stored trajectory."""
ROLLOUT_COLUMNS = ("prompts", "responses", "rm_scores", STORED_LOG_PROBS, "extra_fields")
"""Columns of a rollout that agent loops write and the algorithm reads."""
NOTHING = np.empty(0, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A prompt (P,) and a response (T,) that the driver has, with further float columns."""

    prompt_ids: Int32Array
    token_ids: Int32Array
    stored_log_probs: Float32Array = field(default_factory=lambda: NOTHING)
    """Of the response (T,), where it is to be trained on."""
    columns: Mapping[str, Float32Array] = field(default_factory=dict)
    is_in_loss: bool = True

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and response."""
        return int(self.prompt_ids.size + self.token_ids.size)


@dataclass(frozen=True, slots=True)
class QueuedRow:
    """A row that is in TransferQueue already, with columns to add to it."""

    key: str
    num_tokens: int
    """Tokens of prompt and response."""
    columns: Mapping[str, Float32Array] = field(default_factory=dict)


def read_rollouts(columns: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Return what agent loops and graders made of rollouts, one entry a row, from the `ROLLOUT_COLUMNS`."""
    prompts, responses = (_arrays(columns[name], torch.int32) for name in ("prompts", "responses"))
    return {
        "responses": responses,
        CHECKSUMS: token_checksums(prompts, responses),
        STORED_LOG_PROBS: _arrays(columns[STORED_LOG_PROBS], torch.float32),
        "rewards": [float(scores.sum()) for scores in _arrays(columns["rm_scores"], torch.float32)],
        "extra_fields": list(columns["extra_fields"]),
    }


def token_checksums(prompts: Sequence[Int32Array], responses: Sequence[Int32Array]) -> list[int]:
    """Return a checksum of each row's token ids, prompt and response, and of where the one ends."""
    starts = checksums(prompts, repeat(0)).tolist()
    found: list[int] = checksums(responses, starts).tolist()
    return found


def check_tokens(
    prompts: Sequence[Int32Array],
    responses: Sequence[Int32Array],
    received: Sequence[int],
    describe: Callable[[int], str],
) -> None:
    """Raise an `EngineError`, which describes the row, unless workers had the token ids of these checksums."""
    for position, (expected, got) in enumerate(zip(token_checksums(prompts, responses), received, strict=True)):
        if expected != got:
            raise EngineError(
                f"{describe(position)}: token ids of prompt or response changed between processes; they must not be "
                "made from text again."
            )


def _arrays(rows: Any, dtype: torch.dtype) -> list[NDArray[Any]]:
    return [row.to(dtype).numpy() for row in rows]


class KeptRows:
    """The rollouts of a step, found by their very array of token ids, which the step passes on to the update."""

    def __init__(self) -> None:
        self._rows: dict[int, tuple[QueuedRow, Int32Array, Float32Array]] = {}

    def add(
        self, rows: Sequence[QueuedRow], token_ids: Sequence[Int32Array], old_log_probs: Sequence[Float32Array]
    ) -> None:
        """Keep rows until `clear`, with log-probs of the policy before the update, which workers wrote next to them."""
        self._rows |= {id(kept[1]): kept for kept in zip(rows, token_ids, old_log_probs, strict=True)}

    def find(self, row: TrainingRow) -> QueuedRow | None:
        """Return the row to train, if what TransferQueue has of it is what is to be trained on."""
        queued, _, old_log_probs = self._rows.get(id(row.token_ids), (None, None, None))
        return queued if row.behavior_log_probs is old_log_probs else None

    def clear(self) -> None:
        """Remove all rows from TransferQueue."""
        clear_rows([row.key for row, *_ in self._rows.values()])
        self._rows.clear()
