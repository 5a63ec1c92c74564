"""Which rollouts of a step are in TransferQueue, so that the update trains them where they are."""

from collections.abc import Iterable
from dataclasses import dataclass

from exgrpo_core.policy_optimization.mixed_batch import TrainingRow
from exgrpo_core.types import Float32Array, Int32Array
from exgrpo_core.verl_plugin.rows import QueuedRow, clear_rows


@dataclass(frozen=True, slots=True)
class KeptRow:
    """A row in TransferQueue with the arrays that the driver got of it."""

    row: QueuedRow
    token_ids: Int32Array
    old_log_probs: Float32Array
    """Log-probs under the policy before the update: workers wrote them beside the row."""


class KeptRows:
    """The rollouts of a step, found by their very array of token ids, which the step passes on to the update."""

    def __init__(self) -> None:
        self._rows: list[KeptRow] = []
        self._by_token_ids: dict[int, KeptRow] = {}

    def add(self, rows: Iterable[KeptRow]) -> None:
        """Keep rows until `clear`."""
        for kept in rows:
            self._rows.append(kept)
            self._by_token_ids[id(kept.token_ids)] = kept

    def find(self, row: TrainingRow) -> QueuedRow | None:
        """Return the row to train, if what TransferQueue has of it is what is to be trained on."""
        kept = self._by_token_ids.get(id(row.token_ids))
        return kept.row if kept is not None and row.behavior_log_probs is kept.old_log_probs else None

    def clear(self) -> None:
        """Remove all rows from TransferQueue."""
        clear_rows([kept.row.key for kept in self._rows])
        self._rows.clear()
        self._by_token_ids.clear()
