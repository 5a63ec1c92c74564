"""The replay buffer E: stored successes of each question, in buckets by the question's latest correctness.

How a trajectory is stored, moved, replayed and retired, for example one of question 7 in step 3, with K = 8:

1. `insert` gets the success (20 tokens, their log-probs under the policy that wrote it, pi_past). Its token checksum is
   compared with those of the rows that question 7 has already (`RowIndex.rows_with`), and equal ones byte by byte:
   the same response again would be a duplicate and is not stored.
2. It gets the next row, say 41: 160 bytes in `segment-000001.trajectories`, a record of 48 in `segment-000001.rows`,
   which a thread writes, and 17 bytes in memory. The record names 12, the question's row before: rows of a question are
   a chain from the newest back, 41 -> 12 -> none.
3. Three of the question's eight rollouts were right, so `set_bucket(7, 3)` moves it from bucket 2 to 3; a question
   that had no rows would come through bucket 0.
4. In step 5 Algorithm 2 draws question 7 from bucket 3 (`record_draws`). `experiences([12, 41])` reads both candidates
   and checks their checksums; their entropies under the current policy are kept (`record_entropies`), and the lowest,
   41, is replayed (`record_replays`): its ratio is pi_theta / pi_past with the log-probs of step 3.
5. In step 9 all eight are right: `retire(7)` takes the question out of its bucket and forgets its newest row. Rows 12
   and 41 stay in the segments, since nothing in a file is ever rewritten, but nothing leads to them.
6. `snapshot` writes the index and each segment's size; `restore` gives the same buffer from it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from itertools import chain, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.experience_management.storage.append_file import ODD_CONTENT, BufferCorruptionError
from exgrpo_core.experience_management.storage.memory_index import (
    NO_ROW,
    BucketMembership,
    QuestionHistory,
    RowIndex,
)
from exgrpo_core.experience_management.storage.segment_store import SegmentStore, locate
from exgrpo_core.experience_management.storage.segments import (
    ROW,
    TOKEN_BYTES,
    SegmentExtent,
    checked_arrays,
    checksums,
)
from exgrpo_core.experience_management.storage.snapshot import read_snapshot, write_snapshot
from exgrpo_core.types import Experience, Float32Array, Int32Array, Int64Array, Trajectory

__all__ = ["BufferCorruptionError", "InsertOutcome", "ReplayBuffer"]

SEGMENT_BYTES = 1 << 30
"""A segment larger than this is sealed, and a new one is begun."""
_ROWS_AT_ONCE = 4096


class InsertOutcome(NamedTuple):
    """The row of an inserted trajectory: a new row or, for a duplicate, the row stored before."""

    row: int
    trajectory_id: int
    is_duplicate: bool


class ReplayBuffer:
    """E, as append-only segments on disk and an index of numbers in memory.

    A question is in the buffer when it has stored trajectories and is not retired. `insert` puts it into bucket 0, and
    `set_bucket` moves it. Buckets 1..K may be drawn, bucket 0 may not. Retiring a question leaves its rows in the
    segments but out of the buffer; what is inserted later counts alone (Algorithm 1 inserts nothing of a retired one).

    A thread writes inserted rows while the caller continues. They are durable after `seal` or `snapshot`.
    A failed write raises `OSError` in a later call. A restored state
    behaves like the saved one: same rows, same order in the buckets. One process and one thread use a buffer; a second
    buffer may read the segments of a snapshot at the same time.
    """

    def __init__(
        self,
        directory: Path,
        num_questions: int,
        rollouts_per_question: int,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._num_all_questions = num_questions
        self._rollouts_per_question = rollouts_per_question
        self._store = SegmentStore(directory, segment_bytes)
        self._index = RowIndex(num_questions)
        self._membership = BucketMembership(num_questions, rollouts_per_question + 1)
        self.history = QuestionHistory(num_questions)
        self._num_trajectories = 0
        self._num_tokens = 0
        self._num_forgotten = 0
        """Rows of segments that do not belong to the state any more: files number all rows, memory the others."""

    @property
    def rollouts_per_question(self) -> int:
        """K: buckets are 0..K."""
        return self._rollouts_per_question

    @property
    def num_questions(self) -> int:
        """Questions in the buffer, bucket 0 included."""
        return self._membership.num_questions

    @property
    def num_drawable(self) -> int:
        """Questions in buckets 1..K: |E| of min(rho B, |E|)."""
        return int(self.bucket_sizes()[1:].sum())

    @property
    def num_trajectories(self) -> int:
        """Stored trajectories of the questions in the buffer."""
        return self._num_trajectories

    @property
    def num_tokens(self) -> int:
        """Tokens in all segments of this state, those of retired questions included."""
        return self._num_tokens

    @property
    def num_memory_bytes(self) -> int:
        """Bytes of the index in memory."""
        return self._index.num_bytes + self._membership.num_bytes + self.history.num_bytes

    @property
    def num_file_bytes(self) -> int:
        """Bytes of all stored trajectories in the segments of this state."""
        return self._num_tokens * TOKEN_BYTES + self._index.num_rows * ROW.itemsize

    def insert(self, trajectories: Sequence[Trajectory], keeps_duplicates: bool = False) -> list[InsertOutcome]:
        """Store trajectories, in order; one whose token ids its question has already is not stored again, unless asked.

        Raises:
            ValueError: A trajectory names no question, is empty, or lacks a finite log-prob for a token.
        """
        if not trajectories:
            return []
        token_ids, log_probs = checked_arrays(trajectories, self._num_all_questions)
        questions = np.array([trajectory.question_index for trajectory in trajectories], dtype=np.int64)
        token_checksums = checksums(token_ids, repeat(0))
        if keeps_duplicates:
            new = list(range(len(trajectories)))
            rows = [self._index.num_rows + i for i in new]
        else:
            rows, new = locate(self._index, self._store, questions, token_ids, token_checksums)
        if new:
            self._store_rows(
                [trajectories[i] for i in new],
                [token_ids[i] for i in new],
                [log_probs[i] for i in new],
                questions[new],
                token_checksums[new],
            )
        ids = [trajectory.trajectory_id for trajectory in trajectories]
        is_duplicate = [True] * len(rows)
        for i in new:
            is_duplicate[i] = False
        duplicates = np.flatnonzero(is_duplicate)
        stored_ids = self._store.numbers("trajectory_id", np.array(rows, dtype=np.int64)[duplicates])
        for i, stored_id in zip(duplicates.tolist(), stored_ids.tolist(), strict=True):
            ids[i] = stored_id
        return list(map(InsertOutcome, rows, ids, is_duplicate))

    def refresh(self, rows: Sequence[int], log_probs: Sequence[Float32Array], step: int) -> int:
        """Store trajectories again with the log-probs of `step`, their rollout step from now on, and return how many.

        The rows before are candidates no more. Of equal rows the last counts; rows of `step` itself stay as they are.
        """
        newest = dict(zip(rows, log_probs, strict=True))
        stored = [item for item in self.experiences(np.array([*newest], dtype=np.int64)) if item.rollout_step != step]
        again = [
            Trajectory(
                item.question_index, item.token_ids, newest[item.row], item.reward,
                trajectory_id=item.trajectory_id, rollout_step=step,
            ) for item in stored
        ]  # fmt: skip
        new_rows = [outcome.row for outcome in self.insert(again, keeps_duplicates=True)]
        self._index.replace([item.row for item in stored], new_rows)
        self._num_trajectories -= len(stored)
        return len(stored)

    def set_bucket(self, question_index: int, bucket: int) -> None:
        """Move a buffered question into a bucket 0..K, its latest number of correct trajectories."""
        self._membership.move(question_index, bucket)

    def bucket_of(self, question_index: int) -> int | None:
        """Return the bucket of a question, None where it is not in the buffer."""
        return self._membership.bucket_of(question_index)

    def buckets_of(self, question_indices: Int64Array) -> Int64Array:
        """Return the bucket of each question, -1 where it is not in the buffer."""
        return self._membership.buckets_of(question_indices)

    def members(self, bucket: int) -> Int64Array:
        """Return the questions of a bucket, in the order that belongs to the state."""
        return self._membership.members(bucket)

    def bucket_sizes(self) -> Int64Array:
        """Return the number of questions in the buckets 0..K, shape (K+1,)."""
        return self._membership.sizes

    def questions(self) -> Int64Array:
        """Return the questions of buckets 1..K, ascending."""
        drawable = [self.members(bucket) for bucket in range(1, self._rollouts_per_question + 1)]
        return np.sort(np.concatenate(drawable))

    def rows_of(self, question_index: int) -> Int64Array:
        """Return the rows of a question, oldest first; none where it is not in the buffer."""
        return np.array(self._index.rows_of(question_index)[::-1], dtype=np.int64)

    def newest_rollout_steps(self, question_indices: Int64Array) -> Int64Array:
        """Return the step of each question's newest trajectory, -1 where the question is not in the buffer."""
        return self._index.newest_rollout_steps[question_indices].astype(np.int64)

    def experiences(self, rows: Int64Array) -> list[Experience]:
        """Read stored trajectories, in the order of `rows`; the arrays are not shared with other callers.

        Raises:
            BufferCorruptionError: A row differs from what was written; names the segment's file and the row.
        """
        return self._store.experiences(rows)

    def stored_rows(self) -> list[tuple[int, int]]:
        """Return the trajectory id and the question of each row, oldest first."""
        ids, questions = self._store.columns("trajectory_id", "question_index")
        return list(zip(ids.tolist(), questions.tolist(), strict=True))

    def stored_numbers(self, name: str, rows: Int64Array) -> NDArray[Any]:
        """Return a number that was written with each of these rows: `reward`, `rollout_step`, `trajectory_id`."""
        return self._store.numbers(name, rows)

    def newest_rows(self, question_indices: Int64Array) -> Int64Array:
        """Return the newest row of each of these buffered questions."""
        return self._index.newest_rows[question_indices].astype(np.int64)

    def num_stored(self, question_indices: Int64Array) -> Int64Array:
        """Return the number of stored trajectories of each question."""
        return self._index.num_rows_of(question_indices)

    def record_draws(self, question_indices: Int64Array, step: int) -> None:
        """Count one more draw of each of these questions, in `step`."""
        self.history.record_draws(question_indices, step)

    def num_draws(self, question_indices: Int64Array) -> Int64Array:
        """Return how often each question was drawn so far."""
        return self.history.num_draws[question_indices].astype(np.int64)

    def record_entropies(self, rows: Int64Array, values: Float32Array) -> None:
        """Keep the mean entropy of rows under the policy that just scored them, nats."""
        self._index.record_entropies(rows, values)

    def last_entropies(self, rows: Int64Array) -> Float32Array:
        """Return the last known mean entropy of rows, nats; NaN where a row was never scored."""
        return self._index.entropies[rows]

    def record_replays(self, rows: Int64Array) -> None:
        """Count one more replay of each of these rows."""
        self._index.record_replays(rows)

    def num_replays(self, rows: Int64Array) -> Int64Array:
        """Return how often rows were replayed so far."""
        return self._index.num_replays[rows].astype(np.int64)

    def retire(self, question_index: int) -> None:
        """Take a question and its rows out of the buffer; nothing happens if it is not in it."""
        self._membership.remove(question_index)
        self._num_trajectories -= self._index.drop(question_index)

    def evict(self, oldest_step: int, capacity: int | None) -> list[tuple[int, int]]:
        """Let the oldest trajectories leave: those of steps before `oldest_step`, and groups beyond the capacity.

        Return question and trajectory id of each. A question leaves with its last trajectory. Trajectories of one
        question that were stored together, by a step's rollouts or refresh, leave together. Steps of rows must ascend,
        as those of a run do.
        """
        index, gone, last = self._index, list[tuple[int, int]](), (-1, -1)
        while index.first_row < index.num_rows:
            rows = np.arange(index.first_row, min(index.first_row + _ROWS_AT_ONCE, index.num_rows))
            names = ("question_index", "rollout_step", "trajectory_id")
            questions, steps, ids = (self._store.numbers(name, rows) for name in names)
            is_stored = index.leads_to(rows, questions.astype(np.int64))
            excess = 0 if capacity is None else self._num_trajectories - capacity
            leaves = (steps < oldest_step) | (np.cumsum(is_stored) - is_stored < excess)
            num_rows = int(rows.size if leaves.all() else leaves.argmin())
            groups = list(zip(questions.tolist(), steps.tolist(), strict=True))
            if (leaving := np.flatnonzero(is_stored[:num_rows])).size:
                last = groups[leaving[-1]]
            while num_rows < rows.size and (groups[num_rows] == last or not is_stored[num_rows]):
                num_rows += 1
            left = np.flatnonzero(is_stored[:num_rows])
            gone += zip(questions[left].tolist(), ids[left].tolist(), strict=True)
            self._num_trajectories -= left.size
            index.first_row += num_rows
            if num_rows < rows.size:
                break
        for question_index in reversed(dict.fromkeys(question_index for question_index, _ in reversed(gone))):
            if index.newest_rows[question_index] < index.first_row:
                index.drop(question_index)
                self._membership.remove(question_index)
        return gone

    def seal(self) -> None:
        """Make all inserted rows durable and close the segment for writing; the next insert opens another.

        Segments whose rows were all evicted do not belong to the state from now on.
        """
        self._store.seal()
        if self._index.first_row:
            num_tokens = self._store.columns("num_tokens")[0]
            num_rows = self._store.forget(self._index.first_row)
            self._num_tokens -= int(num_tokens[:num_rows].sum(dtype=np.int64))
            self._index.forget(num_rows)
            self._num_forgotten += num_rows

    def close(self) -> None:
        """Write all inserted rows and close the files, without waiting until they are durable."""
        self._store.close()

    def snapshot(self, path: Path) -> None:
        """Write the index and how much of each segment belongs to it; the file appears whole or not at all."""
        self._store.sync()
        write_snapshot(path, *self._state())

    def _state(self) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        header = {
            "num_questions": self._num_all_questions,
            "rollouts_per_question": self._rollouts_per_question,
            "num_trajectories": self._num_trajectories,
            "first_row": self._index.first_row,
            "num_forgotten": self._num_forgotten,
            "segments": [asdict(extent) for extent in self._store.extents],
        }
        columns: dict[str, NDArray[Any]] = {
            "bucket_sizes": self._membership.sizes,
            "members": self._membership.dump(),
            **self._index.columns(),
            **self.history.columns(),
        }
        return header, columns

    @classmethod
    def restore(cls, directory: Path, path: Path) -> "ReplayBuffer":
        """Return the buffer of a snapshot, with its segments in `directory`; new rows go into a new segment.

        Raises:
            BufferCorruptionError: The snapshot or a segment is missing, cut or altered; names the file.
        """
        header, columns = read_snapshot(path)
        try:
            return cls._restored(directory, header, columns)
        except ODD_CONTENT as error:
            raise BufferCorruptionError(
                f"{path}: not a valid snapshot of a replay buffer; use an older checkpoint."
            ) from error

    @classmethod
    def _restored(
        cls, directory: Path, header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]
    ) -> "ReplayBuffer":
        buffer = cls(directory, header["num_questions"], header["rollouts_per_question"])
        extents = [SegmentExtent(**extent) for extent in header["segments"]]
        buffer._store = SegmentStore.restore(directory, extents, SEGMENT_BYTES)
        buffer._membership.load(columns["members"], columns["bucket_sizes"])
        buffer.history.load(columns)
        records = buffer._store.columns(
            "num_tokens", "question_index", "previous_row", "token_checksum", "rollout_step"
        )
        buffer._num_tokens = int(records[0].sum(dtype=np.int64))
        buffer._num_trajectories = header["num_trajectories"]
        buffer._num_forgotten = header.get("num_forgotten", 0)
        records[2] = np.maximum(records[2] - buffer._num_forgotten, NO_ROW)
        buffer._index.load(records[1:], buffer._membership.is_member, columns)
        buffer._index.first_row = header.get("first_row", 0)
        return buffer

    def _store_rows(
        self,
        trajectories: Sequence[Trajectory],
        token_ids: Sequence[Int32Array],
        log_probs: Sequence[Float32Array],
        questions: Int64Array,
        token_checksums: NDArray[np.uint32],
    ) -> None:
        rollout_steps = np.array([trajectory.rollout_step for trajectory in trajectories], dtype=np.int64)
        records = np.zeros(len(trajectories), dtype=ROW)
        records["trajectory_id"] = [trajectory.trajectory_id for trajectory in trajectories]
        records["question_index"] = questions
        records["num_tokens"] = list(map(len, token_ids))
        records["rollout_step"] = rollout_steps
        previous = self._index.extend(questions, token_checksums, rollout_steps)
        records["previous_row"] = np.where(previous == NO_ROW, NO_ROW, previous + self._num_forgotten)
        records["token_checksum"] = token_checksums
        records["checksum"] = checksums(log_probs, token_checksums.tolist())
        records["reward"] = [trajectory.reward for trajectory in trajectories]
        pairs: Iterable[tuple[Any, Any]] = zip(token_ids, log_probs, strict=True)
        self._store.append(records, b"".join(chain.from_iterable(pairs)))
        self._num_trajectories += len(trajectories)
        self._num_tokens += int(records["num_tokens"].sum(dtype=np.int64))
        for question_index in questions[self._membership.buckets_of(questions) < 0].tolist():
            self.set_bucket(question_index, 0)
