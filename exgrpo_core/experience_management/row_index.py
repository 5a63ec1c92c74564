"""What memory holds of every stored row: the few numbers that a step reads often."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.types import BoolArray, Float32Array, Int32Array

NO_ROW = -1


class RowIndex:
    """Rows of a question as a chain from its newest row back, with each row's token checksum and last entropy.

    12 bytes a row and 8 a question.
    """

    def __init__(self, num_questions: int) -> None:
        self.num_rows = 0
        self.newest_rows: Int32Array = np.full(num_questions, NO_ROW, dtype=np.int32)
        self.newest_steps: Int32Array = np.full(num_questions, -1, dtype=np.int32)
        self._previous_rows: Int32Array = np.empty(0, dtype=np.int32)
        self._token_crc32s: NDArray[np.uint32] = np.empty(0, dtype=np.uint32)
        self._entropies: Float32Array = np.empty(0, dtype=np.float32)

    @property
    def entropies(self) -> Float32Array:
        """Last known mean entropy of each row, nats; NaN where a row was never scored."""
        return self._entropies[: self.num_rows]

    def rows_of(self, question_index: int) -> list[int]:
        """Return the rows of a question, newest first."""
        rows = []
        row = self.newest_rows.item(question_index)
        while row != NO_ROW:
            rows.append(row)
            row = self._previous_rows.item(row)
        return rows

    def rows_with(self, question_index: int, token_crc32: int) -> list[int]:
        """Return the rows of a question whose token ids have this checksum, newest first."""
        rows = []
        row = self.newest_rows.item(question_index)
        while row != NO_ROW:
            if self._token_crc32s.item(row) == token_crc32:
                rows.append(row)
            row = self._previous_rows.item(row)
        return rows

    def append(self, question_index: int, token_crc32: int, born_step: int) -> None:
        """Add the next row of a question."""
        row = self.num_rows
        if row == self._previous_rows.size:
            self._reserve(max(1024, row + row // 4))
        self._previous_rows[row] = self.newest_rows[question_index]
        self._token_crc32s[row] = token_crc32
        self._entropies[row] = np.nan
        self.newest_rows[question_index] = row
        self.newest_steps[question_index] = born_step
        self.num_rows = row + 1

    def drop(self, question_index: int) -> int:
        """Unchain the rows of a question and return how many they were."""
        num_rows = len(self.rows_of(question_index))
        self.newest_rows[question_index] = NO_ROW
        self.newest_steps[question_index] = -1
        return num_rows

    def load(self, columns: Sequence[NDArray[Any]], is_buffered: BoolArray, entropies: Float32Array) -> None:
        """Fill an empty index from the records' questions, chains, checksums and steps, for buffered questions."""
        questions, previous_rows, token_crc32s, born_steps = columns
        self.num_rows = questions.size
        self._previous_rows, self._token_crc32s = previous_rows, token_crc32s
        self._entropies = entropies
        np.maximum.at(self.newest_rows, questions, np.arange(self.num_rows, dtype=np.int32))
        self.newest_rows[~is_buffered] = NO_ROW
        self.newest_steps[is_buffered] = born_steps[self.newest_rows[is_buffered]]

    def _reserve(self, capacity: int) -> None:
        for name in ("_previous_rows", "_token_crc32s", "_entropies"):
            old = getattr(self, name)
            new = np.empty(capacity, dtype=old.dtype)
            new[: old.size] = old
            setattr(self, name, new)
