"""Ingesting one run's files into the database, a batch at a time."""

import math
import time

from db.connections.session import Database
from db.ingest import events
from db.ingest.events import read_position
from db.ingest.run_summary import forget_not_shown, record_faults
from db.queries.runs import get_run
from exgrpo_core.errors import first_line
from exgrpo_core.faults import Fault, FaultKind
from jobs.evaluation.recorded_answers import find_answer_damage
from jobs.recording.event_reader import EventReader, find_missing_events
from jobs.runs.attempts import read_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.runs.state import RunState, describe_run

RETRY_SECONDS = 5.0


class RunIndexing:
    """Ingests one run. An ended run shows its end only once everything before it is ingested."""

    def __init__(self, run: RunDirectory, state: RunState) -> None:
        self._run = run
        self._reader = EventReader(run)
        self._state = state
        self.is_registered = False
        self._is_shown = False
        self.is_shown = True
        self._retry_at = math.inf
        self._last_ended_attempt = 0
        self._position: str | None = None
        self.is_caught_up = False

    @property
    def key(self) -> tuple[str, str, int]:
        """The status, reason and attempt to show."""
        return (self._state.status.value, self._state.reason, self._state.attempt)

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, so that nothing more will come."""
        return self._state.is_ended

    def set_state(self, state: RunState) -> None:
        """Set the run's new state."""
        self._state = state
        self._is_shown = False
        self.is_caught_up = False

    def advance(self, database: Database, give_up_at: float) -> None:
        """Ingest what files have and the database lacks, until `give_up_at` at the latest.

        Raises:
            ValueError: The run's files cannot be read.
        """
        if self.is_caught_up and not self._may_record and time.monotonic() < self._retry_at:
            return
        if not self.is_registered:
            self._register(database)
        if not self._is_shown and not self.is_over:
            self._show(database)
        while self._take_batch(database):
            if time.monotonic() >= give_up_at:
                self.is_caught_up = False
                return
        if not self._is_shown:
            self._show(database)
            self._record_damaged_ends(database)
            if self.is_over:
                record_faults(database, self._run.run_id, find_answer_damage(self._run.path))
        self.is_caught_up = True
        if not self.is_shown:
            forget_not_shown(database, self._run.run_id)
            self.is_shown, self._retry_at = True, math.inf

    @property
    def _may_record(self) -> bool:
        return not (self._state.is_ended or self._state.status is RunStatus.QUEUED)

    def _register(self, database: Database) -> None:
        description = describe_run(self._run)
        events.register_run(database, description.info, description.spec, description.faults)
        row = get_run(database, self._run.run_id)
        self.is_shown = row is None or not row.not_shown
        self._position = read_position(database, events.run_source(self._run.run_id))
        self.is_registered = True

    def _take_batch(self, database: Database) -> bool:
        batch = self._reader.read(self._position)
        if not batch.events and batch.position == self._position:
            return False
        num_new = events.ingest_events(database, self._run.run_id, batch.events, batch.position, batch.faults)
        self._position = batch.position
        if num_new and self._state.status is RunStatus.QUEUED:
            self._is_shown = False
        return batch.has_more

    def _show(self, database: Database) -> None:
        self._show_earlier_ends(database, self._state.attempt)
        self._show_state(database, self._state)

    def _show_state(self, database: Database, state: RunState) -> None:
        attempt = state.attempt or None
        is_about_attempt = state.status is not RunStatus.QUEUED
        events.set_status(
            database,
            self._run.run_id,
            state.status.value,
            state.reason,
            attempt=attempt if is_about_attempt else None,
            at=state.ended_at,
        )
        self._is_shown = True

    def _record_damaged_ends(self, database: Database) -> None:
        for attempt in self._run.attempts():
            end = read_outcome(self._run.attempt_path(attempt))
            known = None if end is None else end.fault
            fault = known or find_missing_events(attempt, end, self._position)
            record_faults(database, self._run.run_id, [fault] if fault else [])

    def record_failure(self, database: Database, error: Exception) -> None:
        """Record why the run cannot be shown completely, and try again later.

        An error of the file system may pass within seconds; others wait for a change of the run's state or the next
        supervisor, which may be of another version.
        """
        self.is_caught_up, self.is_shown = True, False
        self._retry_at = time.monotonic() + RETRY_SECONDS if isinstance(error, OSError) else math.inf
        if self.is_registered:
            record_faults(database, self._run.run_id, [Fault(FaultKind.NOT_SHOWN, "", details=first_line(error))])
            self._show_state(database, self._state)

    def _show_earlier_ends(self, database: Database, newest: int) -> None:
        """Show how earlier attempts ended: if the worker could not write any more, no event has it."""
        for attempt in self._run.attempts():
            if not self._last_ended_attempt < attempt < newest:
                continue
            outcome = read_outcome(self._run.attempt_path(attempt))
            if outcome is not None:
                status = outcome.status.value
                events.set_status(database, self._run.run_id, status, outcome.reason, attempt=attempt, at=outcome.at)
            self._last_ended_attempt = attempt
