"""What memory holds of each question (its bucket, what was drawn and seen of it) and of each stored row."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.types import BoolArray, Float32Array, Float64Array, Int32Array, Int64Array

ABSENT = -1
_COLUMNS = ("_previous_rows", "_token_checksums", "_entropies", "_num_replays", "_is_replaced")


class BucketMembership:
    """Buckets 0..K of question indices, updated as questions move. A move costs the same for any number of questions.

    The order inside a bucket follows from the history of moves: it is part of the state and saved with it, so that a
    restored run draws the same questions.
    """

    def __init__(self, num_questions: int, num_buckets: int) -> None:
        self._buckets: NDArray[np.int16] = np.full(num_questions, ABSENT, dtype=np.int16)
        self._positions: Int32Array = np.zeros(num_questions, dtype=np.int32)
        self._members = [np.empty(8, dtype=np.int32) for _ in range(num_buckets)]
        self._sizes = [0] * num_buckets

    @property
    def sizes(self) -> Int64Array:
        """Questions in each bucket."""
        return np.array(self._sizes, dtype=np.int64)

    @property
    def num_questions(self) -> int:
        """Questions in all buckets."""
        return sum(self._sizes)

    @property
    def num_bytes(self) -> int:
        """Bytes of the membership in memory, without the room reserved for more members."""
        return self._buckets.nbytes + self._positions.nbytes + self.num_questions * self._members[0].itemsize

    @property
    def is_member(self) -> BoolArray:
        """Mask (num_questions,) of the questions that are in a bucket."""
        is_member: BoolArray = self._buckets != ABSENT
        return is_member

    def bucket_of(self, question_index: int) -> int | None:
        """Return the bucket of a question, None where it is in none."""
        bucket = int(self._buckets.item(question_index))
        return None if bucket == ABSENT else bucket

    def buckets_of(self, question_indices: Int64Array) -> Int64Array:
        """Return the bucket of each question, `ABSENT` where it is in none."""
        return self._buckets[question_indices].astype(np.int64)

    def members(self, bucket: int) -> Int64Array:
        """Return a copy of a bucket's questions, in the order of the state."""
        return self._members[bucket][: self._sizes[bucket]].astype(np.int64)

    def move(self, question_index: int, bucket: int) -> None:
        """Move a question into a bucket."""
        if self._buckets.item(question_index) == bucket:
            return
        self.remove(question_index)
        position = self._sizes[bucket]
        members = self._members[bucket]
        if position == members.size:
            members = self._members[bucket] = np.concatenate((members, np.empty_like(members)))
        members[position] = question_index
        self._positions[question_index] = position
        self._buckets[question_index] = bucket
        self._sizes[bucket] = position + 1

    def remove(self, question_index: int) -> None:
        """Take a question out of its bucket, if it is in one; the bucket's last question takes its place."""
        bucket = self._buckets.item(question_index)
        if bucket == ABSENT:
            return
        self._sizes[bucket] -= 1
        position = self._positions[question_index]
        last = self._members[bucket][self._sizes[bucket]]
        self._members[bucket][position] = last
        self._positions[last] = position
        self._buckets[question_index] = ABSENT

    def dump(self) -> Int32Array:
        """Return the members of all buckets, one bucket after the other."""
        return np.concatenate([questions[:size] for questions, size in zip(self._members, self._sizes, strict=True)])

    def load(self, members: Int32Array, sizes: Int64Array) -> None:
        """Fill an empty membership with what `dump` and `sizes` returned."""
        for bucket, questions in enumerate(np.split(members, np.cumsum(sizes)[:-1])):
            self._members[bucket] = np.concatenate((questions, np.empty(8 + questions.size // 8, dtype=np.int32)))
            self._sizes[bucket] = questions.size
            self._positions[questions] = np.arange(questions.size, dtype=np.int32)
            self._buckets[questions] = bucket


def narrow(numbers: NDArray[np.int32]) -> NDArray[Any]:
    """Return numbers of at least 0 in the fewest bytes each that hold the largest."""
    return numbers.astype(np.min_scalar_type(numbers.max(initial=0)))


class QuestionHistory:
    """Draws of each question, the step of the last one, and how the rewards of its latest group spread.

    16 bytes a question, and 2 for each k that is kept. `reward_spreads` (questions, 2) hold standard deviation (of
    K - 1) and mean absolute deviation. `past_correct` (questions, N) are the buckets that a question's newest N groups
    gave, the newest last, -1 if there were fewer. `most_correct` is the largest of all of its groups; it has no entries
    where N is 0.
    """

    def __init__(self, num_questions: int) -> None:
        self.num_draws: Int32Array = np.zeros(num_questions, dtype=np.int32)
        self.draw_steps: Int32Array = np.full(num_questions, -1, dtype=np.int32)
        self.reward_spreads: Float32Array = np.zeros((num_questions, 2), dtype=np.float32)
        self.past_correct: NDArray[np.int16] = np.empty((num_questions, 0), dtype=np.int16)
        self.most_correct: NDArray[np.int16] = np.empty(0, dtype=np.int16)

    @property
    def num_bytes(self) -> int:
        """Bytes of the columns in memory."""
        return sum(column.nbytes for column in vars(self).values())

    def record_draws(self, question_indices: Int64Array, step: int) -> None:
        """Count one more draw of each of these questions, in `step`."""
        np.add.at(self.num_draws, question_indices, 1)
        self.draw_steps[question_indices] = step

    def keep_past_groups(self, num_groups: int) -> None:
        """Set N; what is known stays as far as there is room."""
        if not self.most_correct.size:
            self.most_correct = self.past_correct.max(axis=1, initial=-1)
        self.most_correct = self.most_correct[: self.num_draws.size if num_groups else 0]
        newest = self.past_correct[:, max(0, self.past_correct.shape[1] - num_groups) :]
        self.past_correct = np.full((self.num_draws.size, num_groups), -1, dtype=np.int16)
        self.past_correct[:, num_groups - newest.shape[1] :] = newest

    def record_correct(self, question_indices: Sequence[int], buckets: Sequence[int]) -> None:
        """Keep the bucket that each question's group gave; the oldest of more than N is forgotten."""
        if self.past_correct.shape[1]:
            rows = list(question_indices)
            self.past_correct[rows, :-1] = self.past_correct[rows, 1:]
            self.past_correct[rows, -1] = buckets
            self.most_correct[rows] = np.maximum(self.most_correct[rows], buckets)

    def record_rewards(self, question_indices: Sequence[int], rewards: Sequence[Float32Array]) -> None:
        """Keep how the rewards of each question's latest group spread, those of at least two trajectories."""
        if not rewards:
            return
        sizes = np.array([values.size for values in rewards])
        starts = np.cumsum(sizes) - sizes
        exact: Float64Array = np.concatenate(rewards, dtype=np.float64)
        gaps = exact - np.repeat(np.add.reduceat(exact, starts) / sizes, sizes)
        spreads = np.sqrt(np.add.reduceat(gaps**2, starts) / (sizes - 1)), np.add.reduceat(np.abs(gaps), starts) / sizes
        self.reward_spreads[list(question_indices)] = np.stack(spreads, axis=1)

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what `load` needs, as columns of a snapshot."""
        return {
            "num_draws": narrow(self.num_draws),
            "draw_steps_from_1": narrow(self.draw_steps + 1),
            "reward_spreads": self.reward_spreads.reshape(-1),
            "past_correct": self.past_correct.reshape(-1),
            "most_correct": self.most_correct,
        }

    def load(self, columns: Mapping[str, NDArray[Any]]) -> None:
        """Continue from the columns of a snapshot."""
        self.num_draws = columns["num_draws"].astype(np.int32)
        self.draw_steps = columns["draw_steps_from_1"].astype(np.int32) - 1
        self.reward_spreads = columns["reward_spreads"].copy().reshape(-1, 2)
        past_correct = columns.get("past_correct", np.empty(0, dtype=np.int16))
        self.past_correct = past_correct.copy().reshape(self.num_draws.size, -1)
        self.most_correct = columns.get("most_correct", np.empty(0, dtype=np.int16)).copy()


NO_ROW = -1


class RowIndex:
    """Rows of a question as a chain from its newest row back, with token checksum, last entropy and replays.

    A replaced row stays in its chain and is passed over: a newer row has the same tokens. 17 bytes a row and 8 a
    question.
    """

    def __init__(self, num_questions: int) -> None:
        self.num_rows = 0
        self.first_row = 0
        """Rows before it were evicted: no chain leads to them."""
        self.newest_rows: Int32Array = np.full(num_questions, NO_ROW, dtype=np.int32)
        self.newest_rollout_steps: Int32Array = np.full(num_questions, -1, dtype=np.int32)
        self._previous_rows: Int32Array = np.empty(0, dtype=np.int32)
        self._token_checksums: NDArray[np.uint32] = np.empty(0, dtype=np.uint32)
        self._entropies: Float32Array = np.empty(0, dtype=np.float32)
        self._num_replays: Int32Array = np.empty(0, dtype=np.int32)
        self._is_replaced: BoolArray = np.empty(0, dtype=np.bool_)

    @property
    def entropies(self) -> Float32Array:
        """Last known mean entropy of each row, nats; NaN where a row was never scored."""
        return self._entropies[: self.num_rows]

    @property
    def num_replays(self) -> Int32Array:
        """How often each row was replayed."""
        return self._num_replays[: self.num_rows]

    @property
    def is_replaced(self) -> BoolArray:
        """Which rows a newer row with the same tokens replaces."""
        return self._is_replaced[: self.num_rows]

    @property
    def num_bytes(self) -> int:
        """Bytes of the index in memory, without the room reserved for more rows."""
        by_row: int = sum(getattr(self, name).itemsize for name in _COLUMNS)
        return self.newest_rows.nbytes + self.newest_rollout_steps.nbytes + self.num_rows * by_row

    def rows_of(self, question_index: int) -> list[int]:
        """Return the rows of a question, newest first."""
        rows = []
        row = self.newest_rows.item(question_index)
        while row >= self.first_row:
            if not self._is_replaced.item(row):
                rows.append(row)
            row = self._previous_rows.item(row)
        return rows

    def num_rows_of(self, question_indices: Int64Array) -> Int64Array:
        """Return the number of rows of each question; all chains are walked at once."""
        counts = np.zeros(question_indices.size, dtype=np.int64)
        rows = self.newest_rows[question_indices]
        while (is_row := rows >= self.first_row).any():
            counts += is_row & ~self._is_replaced[rows]
            rows = np.where(is_row, self._previous_rows[rows], NO_ROW)
        return counts

    def rows_with(self, question_indices: Int64Array, token_checksums: NDArray[np.uint32]) -> list[tuple[int, int]]:
        """Return (position, row) of every row of the question at a position that has the checksum at this position.

        All chains are walked at once, so the time depends on the longest chain, not on how many there are.
        """
        matches: list[tuple[int, int]] = []
        positions = np.arange(question_indices.size)
        rows = self.newest_rows[question_indices]
        while True:
            is_row = rows >= self.first_row
            positions, rows = positions[is_row], rows[is_row]
            if not rows.size:
                return matches
            is_equal = (self._token_checksums[rows] == token_checksums[positions]) & ~self._is_replaced[rows]
            if is_equal.any():
                matches += zip(positions[is_equal].tolist(), rows[is_equal].tolist(), strict=True)
            rows = self._previous_rows[rows]

    def extend(
        self, question_indices: Int64Array, token_checksums: NDArray[np.uint32], rollout_steps: Int64Array
    ) -> Int32Array:
        """Add rows, in order, and return which row each question had before, `NO_ROW` if none."""
        start, stop = self.num_rows, self.num_rows + question_indices.size
        if stop > self._previous_rows.size:
            self._reserve(max(1024, stop + stop // 4))
        newest = dict(zip(question_indices.tolist(), self.newest_rows[question_indices].tolist(), strict=True))
        previous_rows = []
        for row, question_index in enumerate(question_indices.tolist(), start):
            previous_rows.append(newest[question_index])
            newest[question_index] = row
        self._previous_rows[start:stop] = previous_rows
        self._token_checksums[start:stop] = token_checksums
        self._entropies[start:stop] = np.nan
        self._num_replays[start:stop] = 0
        self._is_replaced[start:stop] = False
        self.newest_rows[list(newest)] = list(newest.values())
        self.newest_rollout_steps[question_indices] = rollout_steps  # the last of equal indices remains
        self.num_rows = stop
        return self._previous_rows[start:stop]

    def replace(self, old_rows: Sequence[int], new_rows: Sequence[int]) -> None:
        """Pass over old rows from now on; the new ones take over their last entropies and replays."""
        old, new = np.array(old_rows, dtype=np.int64), np.array(new_rows, dtype=np.int64)
        self._is_replaced[old] = True
        self._entropies[new] = self._entropies[old]
        self._num_replays[new], self._num_replays[old] = self._num_replays[old], 0

    def record_entropies(self, rows: Int64Array, values: Float32Array) -> None:
        """Keep the mean entropy of rows, nats."""
        self._entropies[rows] = values

    def record_replays(self, rows: Int64Array) -> None:
        """Count one more replay of each of these rows."""
        np.add.at(self._num_replays, rows, 1)

    def drop(self, question_index: int) -> int:
        """Unchain the rows of a question and return their number."""
        num_rows = len(self.rows_of(question_index))
        self.newest_rows[question_index] = NO_ROW
        self.newest_rollout_steps[question_index] = -1
        return num_rows

    def leads_to(self, rows: Int64Array, question_indices: Int64Array) -> BoolArray:
        """Return which rows, of these questions, are in their question's chain."""
        is_stored: BoolArray = (self.newest_rows[question_indices] >= rows) & ~self._is_replaced[rows]
        return is_stored

    def forget(self, num_rows: int) -> None:
        """Drop the first rows, all of them evicted, and number the others from 0."""
        for name in _COLUMNS:
            setattr(self, name, getattr(self, name)[num_rows:].copy())
        self._previous_rows = np.maximum(self._previous_rows - num_rows, NO_ROW)
        self.newest_rows[self.newest_rows != NO_ROW] -= num_rows
        self.num_rows -= num_rows
        self.first_row -= num_rows

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return what `load` needs, as columns of a snapshot; few rows were replayed, and fewer replaced."""
        replayed_rows = np.flatnonzero(self.num_replays).astype(np.int32)
        return {
            "entropies": self.entropies,
            "replayed_rows": replayed_rows,
            "num_replays": narrow(self.num_replays[replayed_rows]),
            "replaced_rows": np.flatnonzero(self.is_replaced).astype(np.int32),
        }

    def load(
        self, records: Sequence[NDArray[Any]], is_buffered: BoolArray, columns: Mapping[str, NDArray[Any]]
    ) -> None:
        """Fill an empty index from the records' questions, chains, checksums and steps, and a snapshot's columns."""
        questions, previous_rows, token_checksums, rollout_steps = records
        self.num_rows = questions.size
        self._previous_rows, self._token_checksums = previous_rows, token_checksums
        self._entropies = columns["entropies"].copy()
        self._num_replays = np.zeros(self.num_rows, dtype=np.int32)
        self._num_replays[columns["replayed_rows"]] = columns["num_replays"]
        self._is_replaced = np.zeros(self.num_rows, dtype=np.bool_)
        self._is_replaced[columns["replaced_rows"]] = True
        np.maximum.at(self.newest_rows, questions, np.arange(self.num_rows, dtype=np.int32))
        self.newest_rows[~is_buffered] = NO_ROW
        self.newest_rollout_steps[is_buffered] = rollout_steps[self.newest_rows[is_buffered]]

    def _reserve(self, capacity: int) -> None:
        for name in _COLUMNS:
            old = getattr(self, name)
            new = np.empty(capacity, dtype=old.dtype)
            new[: old.size] = old
            setattr(self, name, new)
