"""Finding trajectories that their question has already."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.experience_management.storage.row_index import RowIndex
from exgrpo_core.experience_management.storage.segment_store import SegmentStore
from exgrpo_core.types import Int32Array, Int64Array


def locate(
    index: RowIndex,
    store: SegmentStore,
    questions: Int64Array,
    token_ids: Sequence[Int32Array],
    token_checksums: NDArray[np.uint32],
) -> tuple[list[int], list[int]]:
    """Return the row of each trajectory and which trajectories are new.

    A duplicate has the row of its equal, which was stored before or comes earlier in the same call.
    """
    keys = list(zip(questions.tolist(), token_checksums.tolist(), strict=True))
    key_of = {row: keys[i] for i, row in index.rows_with(questions, token_checksums)}
    rows_of_key: dict[tuple[int, int], list[int]] = {}
    for row, key in key_of.items():
        rows_of_key.setdefault(key, []).append(row)
    stored = np.fromiter(key_of, dtype=np.int64, count=len(key_of))
    contents = dict(zip(key_of, store.token_bytes(stored), strict=True))
    rows: list[int] = []
    new: list[int] = []
    num_stored = index.num_rows

    def content_of(row: int) -> bytes | bytearray:
        return contents[row] if row < num_stored else token_ids[new[row - num_stored]].tobytes()

    for i, key in enumerate(keys):
        candidates = rows_of_key.setdefault(key, [])
        duplicate = next((row for row in candidates if content_of(row) == token_ids[i].tobytes()), None)
        if duplicate is None:
            duplicate = num_stored + len(new)
            candidates.append(duplicate)
            new.append(i)
        rows.append(duplicate)
    return rows, new
