"""Rows that have said the same so far: what comes next is computed once for all of them."""

from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import BoolArray, Int64Array
from jobs.engines.embedded.packing import index_tensor
from jobs.engines.embedded.sampling import SharedSampling


@dataclass(frozen=True, slots=True)
class RowCopies:
    """Histories `sources` (k,) are copied to `targets` (k,), no target is a source; then there are `num_histories`."""

    sources: Int64Array
    targets: Int64Array
    num_histories: int


class SharedPrefixes:
    """Says which history each of B rows continues, and parts rows that go on with different tokens.

    `histories` (B,) are numbered from 0 in the order of their first rows. A finished row keeps its history until
    `keep_rows`, so that there are never more of them than rows.
    """

    def __init__(self, histories: Int64Array, vocabulary_size: int) -> None:
        self._histories = histories.copy()
        self._vocabulary_size = vocabulary_size
        self._rank_rows()
        self.all_forked = False
        """Whether every unfinished row has a history of its own since the last `part`, not yet in its own place."""
        self.is_separate = self._num_ranks == 1
        """Whether row i alone continues history i, which stays so."""

    def locate_draws(self, device: torch.device) -> SharedSampling | None:
        """Return where in the draws of all histories each row finds its own; none where histories are separate."""
        if self.is_separate:
            return None
        return SharedSampling(index_tensor(self._histories * self._num_ranks + self._ranks, device), self._num_ranks)

    def part(self, token_ids: Int64Array, is_done: BoolArray) -> tuple[Int64Array, RowCopies]:
        """Go on with the next tokens (B,) of rows; return each history's token and the copies that parting takes.

        Of rows that part, those with the lowest token keep the history. The token of a history that only finished rows
        have means nothing.
        """
        live = np.flatnonzero(~is_done)
        keys = self._histories[live] * self._vocabulary_size + token_ids[live]
        distinct, row_of = np.unique(keys, return_inverse=True)
        parents, next_ids = np.divmod(distinct, self._vocabulary_size)
        is_copy = np.append(False, parents[1:] == parents[:-1])
        copied = parents[is_copy]
        histories = parents.copy()
        histories[is_copy] = self._num_histories + np.arange(copied.size)
        self._histories[live] = histories[row_of]
        if copied.size:
            self._rank_rows()
        self.all_forked = distinct.size == live.size
        by_history = np.zeros(self._num_histories, dtype=np.int64)
        by_history[histories] = next_ids
        return by_history, RowCopies(copied, histories[is_copy], self._num_histories)

    def keep_rows(self, rows: Int64Array) -> tuple[Int64Array, RowCopies]:
        """Drop all but rising `rows`; return their new order, and the moves that fill the places of dropped histories.

        Rows are in the order of their histories: once all have forked, they are separate.
        """
        kept = rows if self.is_separate else np.unique(self._histories[rows])
        is_free = np.ones(kept.size, dtype=np.bool_)
        is_free[kept[kept < kept.size]] = False
        moves = RowCopies(kept[kept >= kept.size], np.flatnonzero(is_free), kept.size)
        if self.is_separate:
            order = np.arange(kept.size)
            order[moves.targets] = moves.sources
            return order, moves
        place = np.arange(self._num_histories)
        place[moves.sources] = moves.targets
        order = np.argsort(place[self._histories[rows]], kind="stable")
        rows = rows[order]
        self._histories = place[self._histories[rows]]
        self._rank_rows()
        self.is_separate |= self.all_forked
        self.all_forked = False
        return rows, moves

    def _rank_rows(self) -> None:
        sizes = np.bincount(self._histories)
        begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
        self._ranks = np.empty_like(self._histories)
        self._ranks[np.argsort(self._histories, kind="stable")] = np.arange(begins.size) - begins
        self._num_ranks = int(sizes.max())
        self._num_histories = sizes.size
