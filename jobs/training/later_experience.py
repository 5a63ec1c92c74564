"""What a resume does with the experience of steps after its checkpoint, in words and as changes of the buffer."""

import numpy as np

from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import BufferEvent, BufferEventKind, StepReport
from jobs.runs.resume_point import describe_later


class LaterExperience:
    """The steps that an earlier attempt did after the checkpoint, kept or dropped by the state opened from it."""

    def __init__(self, state: ExGRPOState, damage: str = "") -> None:
        self._later = state.replay_buffer.later
        self._changes = _changes(state) if self._later.are_kept else []
        self.sentence = " ".join(filter(None, (self._describe(state.step), self._later.damage, damage)))

    def add_to(self, report: StepReport) -> None:
        """Say it with the first step, whose changes of the buffer come after what was kept; later calls do nothing."""
        if self.sentence:
            report.notices.insert(0, self.sentence)
        report.buffer_events[:0] = self._changes
        self.sentence, self._changes = "", []

    def _describe(self, step: int) -> str:
        if not self._later.steps:
            return ""
        return f"Resumed from step {step}: {describe_later(self._later.steps, self._later.are_kept)}"


def _changes(state: ExGRPOState) -> list[BufferEvent]:
    """Return the changes of the buffer that lead from the checkpoint to the state."""
    buffer, before = state.replay_buffer, state.replay_buffer.later.buckets
    after = buffer.buckets_of(np.arange(before.size))
    retired = {index for step in buffer.later.steps for index in step.header["retired"]}
    changes = []
    for index in np.flatnonzero((before != after) | np.isin(np.arange(before.size), list(retired))).tolist():
        old, new = (None if bucket < 0 else bucket for bucket in (int(before[index]), int(after[index])))
        if index in retired:
            changes.append(BufferEvent(BufferEventKind.RETIRED, index, None, old, None))
        else:
            changes.append(BufferEvent(BufferEventKind.MOVED, index, None, old, new))
    rows, first_row = buffer.stored_rows(), buffer.later.first_row
    # A trajectory whose log-probs were refreshed has a new row.
    known = {trajectory_id for trajectory_id, _ in rows[:first_row]}
    for trajectory_id, index in dict(rows[first_row:]).items():
        bucket = buffer.bucket_of(index)
        if bucket is not None and trajectory_id not in known:
            changes.append(BufferEvent(BufferEventKind.INSERTED, index, trajectory_id, bucket, bucket))
    return changes
