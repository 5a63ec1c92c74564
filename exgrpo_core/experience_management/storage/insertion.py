"""Trajectories before they are stored: checked, and compared with those that their question has already."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.experience_management.storage.row_index import RowIndex
from exgrpo_core.experience_management.storage.segment_store import SegmentStore
from exgrpo_core.types import Float32Array, Int32Array, Int64Array, Trajectory

_INT32 = np.dtype("<i4")
_FLOAT32 = np.dtype("<f4")


def checked_arrays(
    trajectories: Sequence[Trajectory], num_questions: int
) -> tuple[list[Int32Array], list[Float32Array]]:
    """Return contiguous token ids and log-probs of each trajectory.

    Raises:
        ValueError: A trajectory names no question, is empty, or lacks a finite log-prob for a token.
    """
    all_token_ids, all_log_probs = [], []
    for trajectory in trajectories:
        token_ids = np.ascontiguousarray(trajectory.token_ids, _INT32)
        log_probs = np.ascontiguousarray(trajectory.log_probs, _FLOAT32)
        if not 0 <= trajectory.question_index < num_questions:
            raise ValueError(f"question_index: expected 0 to {num_questions - 1}, got {trajectory.question_index}.")
        if token_ids.ndim != 1 or token_ids.size == 0:
            raise ValueError(f"token_ids: trajectory {trajectory.trajectory_id} is empty; store responses only.")
        if log_probs.shape != token_ids.shape:
            raise _bad_log_probs(trajectory, token_ids.size)
        all_token_ids.append(token_ids)
        all_log_probs.append(log_probs)
    if not np.isfinite(np.concatenate(all_log_probs)).all():
        first = next(i for i, log_probs in enumerate(all_log_probs) if not np.isfinite(log_probs).all())
        raise _bad_log_probs(trajectories[first], all_token_ids[first].size)
    return all_token_ids, all_log_probs


def _bad_log_probs(trajectory: Trajectory, num_tokens: int) -> ValueError:
    return ValueError(
        f"log_probs: expected {num_tokens} finite numbers for trajectory {trajectory.trajectory_id}, one a token; "
        "check the engine's log-probs."
    )


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
