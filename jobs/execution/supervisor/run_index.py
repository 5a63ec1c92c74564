"""Ingesting one run's files into the database, a batch at a time."""

import logging
import math
import time
from datetime import datetime

from exgrpo.db.connections.session import Database, concerns_database
from exgrpo.db.ingest import events
from exgrpo.db.ingest.events import read_position
from exgrpo.db.ingest.run_summary import forget_not_shown, record_faults
from exgrpo.db.queries.runs import get_run
from exgrpo.jobs.evaluation.recorded_answers import find_answer_damage
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader, find_missing_events
from exgrpo.jobs.runs.state import RunState, describe_run, read_state
from exgrpo_core.errors import first_line
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger(__name__)

RETRY_SECONDS = 5.0


class RunIndexing:
    """Ingests one run. An ended run shows its end only once everything before it is ingested."""

    def __init__(self, run: RunDirectory, state: RunState | None = None) -> None:
        self.directory = run
        self.state = state or RunState(RunStatus.QUEUED, "", 0, None)
        self.is_due = True
        """Whether the run's state may change at any moment."""
        self.is_caught_up = False
        self.is_complete = True
        """Whether the last try to ingest the run succeeded."""
        self._reader = EventReader(run)
        self._is_registered = False
        self._is_state_shown = False
        self._retry_at = math.inf
        self._last_ended_attempt = 0
        self._last_error = ""
        self._position: str | None = None

    @property
    def key(self) -> tuple[str, str, int, datetime | None]:
        """The status, reason, attempt and end to show."""
        return (self.state.status.value, self.state.reason, self.state.attempt, self.state.ended_at)

    def is_shown_by(self, end: tuple[str, str, int, datetime | None] | None) -> bool:
        """Return whether the database shows this state; an end at a time that no file has fits any time."""
        return end is not None and self.key == (*end[:3], self.state.ended_at and end[3])

    def look(self) -> None:
        """Read the run's state from its files; one that cannot be read now keeps its state, and is read again."""
        try:
            state = read_state(self.directory)
            self.is_due = not state.is_ended
        except Exception as error:  # noqa: BLE001 - files of one run, whatever they hold, must not end the others
            if self._is_registered:
                return
            state, self.is_due = RunState(RunStatus.LOST, f"It cannot be read: {first_line(error)}", 0, None), True
        if state.differs_from(self.state):
            self._is_state_shown = self.is_caught_up = False
        self.state = state

    def try_to_advance(self, database: Database, give_up_at: float) -> None:
        """Advance; an error of the program or of the run's files does not stop the others."""
        try:
            self._advance(database, give_up_at)
        except Exception as error:  # files of one run, whatever they hold, must not end the others
            if concerns_database(error):
                raise
            message = first_line(error)
            if self._last_error != message:
                logger.warning("%s is not shown completely: %s", self.directory.run_id, message)
            self._last_error = message
            self._record_failure(database, error)

    def _advance(self, database: Database, give_up_at: float) -> None:
        """Ingest what files have and the database lacks, until `give_up_at` at the latest."""
        if self.is_caught_up and not self.may_record and time.monotonic() < self._retry_at:
            return
        if not self._is_registered:
            self._register(database)
        if not self._is_state_shown and not self.state.is_ended:
            self._show(database)
        elif not self._is_state_shown and self._position is None:
            self._show_state(database, is_whole=False)  # a run that was restored or imported is not running
        while self._take_batch(database):
            if time.monotonic() >= give_up_at:
                self.is_caught_up = False
                return
        if not self._is_state_shown:
            self._show(database)
            self._record_damaged_ends(database)
            if self.state.is_ended:
                record_faults(database, self.directory.run_id, find_answer_damage(self.directory.path))
        self.is_caught_up = True
        if not self.is_complete:
            forget_not_shown(database, self.directory.run_id)
            self.is_complete, self._retry_at = True, math.inf

    @property
    def may_record(self) -> bool:
        """Whether an attempt is under way."""
        return not (self.state.is_ended or self.state.status is RunStatus.QUEUED)

    def _register(self, database: Database) -> None:
        description = describe_run(self.directory)
        events.register_run(database, description.info, description.spec, description.faults)
        row = get_run(database, self.directory.run_id)
        self.is_complete = row is None or not row.not_shown
        self._position = read_position(database, events.run_source(self.directory.run_id))
        self._is_registered = True

    def _take_batch(self, database: Database) -> bool:
        batch = self._reader.read(self._position)
        if not batch.events and batch.position == self._position:
            return False
        num_new = events.ingest_events(database, self.directory.run_id, batch.events, batch.position, batch.faults)
        self._position = batch.position
        if num_new and self.state.status is RunStatus.QUEUED:
            self._is_state_shown = False
        return batch.has_more

    def _show(self, database: Database) -> None:
        self._show_earlier_ends(database, self.state.attempt)
        self._show_state(database)

    def _show_state(self, database: Database, *, is_whole: bool = True) -> None:
        state, run_id = self.state, self.directory.run_id
        attempt = None if state.status is RunStatus.QUEUED else state.attempt or None
        status, at = state.status.value, state.ended_at
        events.set_status(database, run_id, status, state.reason, attempt=attempt, at=at, is_whole=is_whole)
        self._is_state_shown = is_whole

    def _record_damaged_ends(self, database: Database) -> None:
        for attempt in self.directory.attempts():
            end = read_outcome(self.directory.attempt_path(attempt))
            known = None if end is None else end.fault
            faults = [known] if known else find_missing_events(attempt, end, self._position)
            record_faults(database, self.directory.run_id, faults)

    def _record_failure(self, database: Database, error: Exception) -> None:
        """Record why the run cannot be shown completely, and try again later.

        An error of the file system may pass within seconds; others wait for a change of the run's state or the next
        program, which may be of another version.
        """
        self.is_caught_up, self.is_complete = True, False
        self._retry_at = time.monotonic() + RETRY_SECONDS if isinstance(error, OSError) else math.inf
        if self._is_registered:
            record_faults(database, self.directory.run_id, [Fault(FaultKind.NOT_SHOWN, "", details=first_line(error))])
            self._show_state(database)

    def _show_earlier_ends(self, database: Database, newest: int) -> None:
        """Show how earlier attempts ended: if the worker could not write any more, no event has it."""
        for attempt in self.directory.attempts():
            if not self._last_ended_attempt < attempt < newest:
                continue
            outcome = read_outcome(self.directory.attempt_path(attempt))
            if outcome is not None:
                status = outcome.status.value
                events.set_status(
                    database, self.directory.run_id, status, outcome.reason, attempt=attempt, at=outcome.at
                )
            self._last_ended_attempt = attempt
