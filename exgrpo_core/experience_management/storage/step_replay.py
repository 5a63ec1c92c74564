"""Doing logged steps again on the index of a snapshot, so that it is as after the last of them, bit for bit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.experience_management.storage.append_file import BufferCorruptionError
from exgrpo_core.experience_management.storage.memory_index import ABSENT, BucketMembership, QuestionHistory, RowIndex
from exgrpo_core.experience_management.storage.segment_store import SegmentStore
from exgrpo_core.experience_management.storage.segments import SegmentExtent
from exgrpo_core.experience_management.storage.step_log import LoggedStep, LogPosition
from exgrpo_core.types import Int64Array

INSERTED = -1
"""In the place of a move's question: so many rows were inserted, the next ones of the segments."""


@dataclass(frozen=True, slots=True)
class LaterSteps:
    """The steps that were committed after a snapshot, and whether they are in the state that was restored.

    `first_row` is the number of rows of the snapshot and `buckets` (num_questions,) are its buckets. `damage` says
    which steps are not in the state, since files of theirs are damaged; it is empty where all are.
    """

    steps: list[LoggedStep]
    are_kept: bool
    first_row: int
    buckets: Int64Array
    damage: str = ""


def open_with(
    steps: Sequence[LoggedStep],
    directory: Path,
    extents: Sequence[SegmentExtent],
    logged: LogPosition | None,
    segment_bytes: int,
) -> tuple[SegmentStore, list[LoggedStep], str]:
    """Return the segments of a snapshot with those of the steps after it, as many as are whole, these, and the damage.

    Raises:
        BufferCorruptionError: A segment of the snapshot itself is missing, too short or altered.
    """
    kept, why = list(steps), ""
    while True:
        by_name = {extent.name: extent for extent in extents}
        by_name |= {extent["name"]: SegmentExtent(**extent) for step in kept for extent in step.header["segments"]}
        try:
            end = kept[-1].end if kept else logged
            store = SegmentStore.restore(directory, list(by_name.values()), segment_bytes, end)
            if not kept or store.num_rows == kept[-1].header["num_rows"]:
                return store, kept, _damage(steps[len(kept) :], why)
            store.close()
            why = why or f"{directory}: holds other rows than the log says."
        except BufferCorruptionError as error:
            if not kept:
                raise
            why = why or str(error)
        kept.pop()


def _damage(lost: Sequence[LoggedStep], why: str) -> str:
    if not lost:
        return ""
    first, last = (lost[i].header["step"] for i in (0, -1))
    return f"The experience of steps {first} to {last} cannot be kept: {why}"


def apply_steps(
    steps: Sequence[LoggedStep],
    columns_of_rows: Sequence[NDArray[Any]],
    index: RowIndex,
    membership: BucketMembership,
    history: QuestionHistory,
) -> None:
    """Do the steps again, with the changes of one in memory.

    `columns_of_rows` are questions, chains, checksums and rollout steps of all rows.
    """
    questions, _, token_checksums, rollout_steps = columns_of_rows
    for step in steps:
        columns = step.read_columns()
        for question_index, number in columns["moves"].reshape(-1, 2).tolist():
            if question_index == INSERTED:
                rows = slice(index.num_rows, index.num_rows + number)
                index.extend(questions[rows].astype(np.int64), token_checksums[rows], rollout_steps[rows])
            elif number == ABSENT:
                membership.remove(question_index)
                index.drop(question_index)
            else:
                membership.move(question_index, number)
        index.apply(columns)
        history.apply(columns)
