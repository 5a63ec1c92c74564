"""Ingests what runs recorded: each event of a run's files exactly once, however often it comes.

From a run directory to rows, for a run of two attempts whose worker was killed after step 7:

1. `run.json` and `spec.json` become the run's row and its first tags (`register_run`). It is remembered as unannounced
   until the journal's earlier entries on it (tags, notes, names) are ingested too.
2. `EventReader` reads `attempts/0001/record-*.jsonl.gz` from a position. A batch is the events, the position after
   them and the faults of files.
3. One transaction ingests the batch (`ingest_events`): events whose (attempt, seq) is in `ingested_events` are left
   out, the rest become rows of all tables (`RowCollector`), and the position is saved. A kill at any moment repeats or
   loses nothing.
4. Attempt 2 resumes from the checkpoint at step 5, so its first step is 6. That says where it resumed
   (`RepeatedSteps`): rows of attempt 1 after step 5 are removed; the files keep these steps. What users wrote on them
   stays. The rows depend on the set of events alone, not on their order: a rebuilt database has the same.

       (attempt, seq)  event      rows
       (1, 2)          status     attempts (1, running), the run's row: running
       (1, 9)          step 6     steps (6, 1), metrics (6, 1, "reward/mean"), trajectories, replays, buffer_changes
       (1, 10)         step 7     the same with (7, 1)
       (2, 3)          step 6     the same with (6, 2); attempts (2, resumed_from_step=5); (6, 1) and (7, 1) leave
       (1, 9) again    step 6     none

5. The run's summary is computed again from its rows (`refresh_summary`), and its state follows the
   newest attempt, always forward (`_record_statuses`). What no event can say, such as an end by a kill, the indexer
   sets (`set_status`).
6. Damage is kept in the summary as faults. An error of the program or database is the fault `NOT_SHOWN`: the run is
   ingested again when the next program reads it, and `exgrpo db rebuild` does the same for all.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, and_, delete, func, insert, literal, select, tuple_, update

from exgrpo.db.connections.session import Database
from exgrpo.db.ingest import recorded
from exgrpo.db.ingest.event_rows import RowCollector
from exgrpo.db.ingest.run_summary import add_faults, record_settings, refresh_summary
from exgrpo.db.ingest.upsert import insert_new
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import UtcDateTime, storable_text
from exgrpo.db.tables.shared_reads import require_run_key
from exgrpo_core.faults import Fault
from exgrpo_core.recording.run_status import LIVE, RunStatus

Event = Mapping[str, Any]
"""One parsed event: seq, attempt, at, kind and the fields of the kind."""
_UNANNOUNCED = "untold:"
"""Source of a run whose journal entries were not ingested yet."""
_DESCRIBED_BY = ("run.json", "spec.json")
_DESCRIBED = ("name", "spec", "created_at", "parent_run_id", "branched_from_step")


def status_rank(status: str) -> int:
    """Return the rank of a status in the order of an attempt's life."""
    return LIVE.index(status) if status in LIVE else len(LIVE)


class IngestError(ValueError):
    """An event that cannot be ingested; the message names run, attempt and sequence number."""


def register_run(
    database: Database, run_info: Mapping[str, Any], spec: Mapping[str, Any], faults: Sequence[Fault] = ()
) -> None:
    """Add a run from its `run.json` and `spec.json`; a run that has a row keeps it, unless that was of damaged files.

    `faults` are the damage of these files.
    """

    def work(connection: Connection) -> None:
        row = {
            "run_id": run_info["run_id"],
            "name": storable_text(run_info["name"]),
            "status": RunStatus.QUEUED,
            "spec": dict(spec),
            "summary": {},
            "created_at": datetime.fromisoformat(run_info["created_at"]),
            "parent_run_id": storable_text(run_info.get("parent_run_id") or "") or None,
            "branched_from_step": run_info.get("branched_from_step"),
        }
        runs = models.runs
        known = connection.execute(
            select(runs.c.run_key, runs.c.summary).where(runs.c.run_id == row["run_id"])
        ).one_or_none()
        if known is None:
            insert_new(connection, runs, [row])
            run_key = require_run_key(connection, row["run_id"])
            tags = [tag for tag in spec.get("tags") or () if isinstance(tag, str)]
            insert_new(connection, models.tags, [{"run_key": run_key, "tag": storable_text(tag)} for tag in tags])
            save_position(connection, _UNANNOUNCED + row["run_id"], "")
        elif not faults and _is_of_damaged_files(known.summary):
            others = [record for record in known.summary["faults"] if record["file"] not in _DESCRIBED_BY]
            values = {name: row[name] for name in _DESCRIBED} | {"summary": known.summary | {"faults": others}}
            connection.execute(update(runs).where(runs.c.run_key == known.run_key).values(values))
        if faults:
            add_faults(connection, require_run_key(connection, row["run_id"]), faults)

    database.write(work)


def _is_of_damaged_files(summary: Mapping[str, Any]) -> bool:
    return any(record["file"] in _DESCRIBED_BY for record in summary.get("faults", ()))


def set_status(
    database: Database,
    run_id: str,
    status: str,
    reason: str = "",
    *,
    attempt: int | None = None,
    at: datetime | None = None,
    is_whole: bool = True,
) -> None:
    """Set a run's status, whatever its events say; with `attempt`, that attempt's status too, if it is there whole.

    A run that is not there whole has no end yet: a program that is killed before it is whole leaves it to the next one.

    Raises:
        UnknownRunError: There is no such run.
    """

    def work(connection: Connection) -> None:
        run_key = require_run_key(connection, run_id)
        runs, attempts = models.runs, models.attempts
        values: dict[str, Any] = {"status": status, "status_reason": storable_text(reason)}
        ended_at = _end(runs, status, at) if is_whole else None
        connection.execute(update(runs).where(runs.c.run_key == run_key).values(values | {"ended_at": ended_at}))
        if attempt is None:
            return
        if is_whole:
            insert_new(connection, attempts, [{"run_key": run_key, "attempt": attempt}])
            is_it = (attempts.c.run_key == run_key) & (attempts.c.attempt == attempt)
            ended_at = _end(attempts, status, at)
            connection.execute(update(attempts).where(is_it).values(values | {"ended_at": ended_at}))
        is_older = (runs.c.run_key == run_key) & (runs.c.attempt < attempt)
        connection.execute(update(runs).where(is_older).values(attempt=attempt))

    database.write(work)


def ingest_events(
    database: Database, run_id: str, events: Sequence[Event], position: str | None = None, faults: Sequence[Fault] = ()
) -> int:
    """Ingest events and return how many were new; position and faults of the reader are saved in the same transaction.

    Events may come twice, in any order and in any batches: each (run, attempt, seq) counts once.

    Raises:
        UnknownRunError: There is no such run; `register_run` comes first.
        IngestError: An event lacks a field.
    """

    def work(connection: Connection) -> int:
        num_new = _ingest(connection, run_id, events, position)
        if faults:
            add_faults(connection, require_run_key(connection, run_id), faults)
        return num_new

    return database.write(work)


def _ingest(connection: Connection, run_id: str, events: Sequence[Event], position: str | None) -> int:
    run_key = require_run_key(connection, run_id)
    of_run = models.runs.c.run_key == run_key
    connection.execute(select(models.runs.c.run_key).where(of_run).with_for_update())  # one writer of a run at a time
    new = _unseen(connection, run_key, events)
    if new:
        _ensure_attempts(connection, run_key, new)
        repeated = RepeatedSteps(connection, run_key)
        has_left_steps = repeated.note(new)
        if has_left_steps:
            # What users wrote on them comes from the journal again.
            save_position(connection, _UNANNOUNCED + run_id, "")
        collector = RowCollector(run_key)
        gathered = [event for event in recorded.gather(connection, run_key, new) if event not in repeated]
        kept = [event for event in new if event not in repeated]
        for event in gathered:
            try:
                collector.add(event)
            except (KeyError, TypeError, ValueError) as error:
                name = f"{run_id}, attempt {event['attempt']}, event {event['seq']}"
                raise IngestError(f"{name}: cannot be ingested ({type(error).__name__}: {error}).") from error
        for table, rows in collector.rows.items():
            insert_new(connection, table, rows)
        recorded.complete(connection, run_key, gathered, kept, has_left_steps=has_left_steps)
        _record_statuses(connection, run_key, new)
        _record_config(connection, run_key, new)
        record_settings(connection, run_key, new)
        refresh_summary(connection, run_key)
        seen = [{"run_key": run_key, "attempt": event["attempt"], "seq": event["seq"]} for event in new]
        insert_new(connection, models.ingested_events, seen)
    if position is not None:
        save_position(connection, run_source(run_id), position)
    return len(new)


def run_source(run_id: str) -> str:
    """Return the name under which a run's reading position is kept."""
    return f"run:{run_id}"


def _end(table: Table, status: str, at: datetime | None) -> ColumnElement[datetime | None]:
    """Return the end time: the given one, else the stored one, from the final status event, else now."""
    if status in LIVE or at is not None:
        return literal(None if status in LIVE else at, UtcDateTime)
    return func.coalesce(table.c.ended_at, literal(datetime.now(UTC), UtcDateTime))


def _unseen(connection: Connection, run_key: int, events: Sequence[Event]) -> list[Event]:
    offered = {(event["attempt"], event["seq"]): event for event in events}
    if not offered:
        return []
    table = models.ingested_events
    sequence_numbers = [seq for _, seq in offered]
    seen = select(table.c.attempt, table.c.seq).where(
        table.c.run_key == run_key, table.c.seq.between(min(sequence_numbers), max(sequence_numbers))
    )
    for attempt, seq in connection.execute(seen):
        offered.pop((attempt, seq), None)
    return [offered[key] for key in sorted(offered)]


def _ensure_attempts(connection: Connection, run_key: int, events: Sequence[Event]) -> None:
    attempts, runs, seen = models.attempts, models.runs, models.ingested_events
    first_of: dict[int, Event] = {}
    for event in events:
        first_of.setdefault(event["attempt"], event)
    insert_new(connection, attempts, [{"run_key": run_key, "attempt": attempt} for attempt in first_of])
    for attempt, first in first_of.items():
        # An attempt began with its first event, which has not the earliest time if its clock was set back.
        of_attempt = (seen.c.run_key == run_key) & (seen.c.attempt == attempt)
        has_earlier = select(seen.c.seq).where(of_attempt, seen.c.seq < first["seq"]).exists()
        is_it = (attempts.c.run_key == run_key) & (attempts.c.attempt == attempt) & ~has_earlier
        began_at = datetime.fromisoformat(first["at"])
        connection.execute(update(attempts).where(is_it).values(started_at=began_at))
    last = max(datetime.fromisoformat(event["at"]) for event in events)
    is_run = runs.c.run_key == run_key
    has_begun = (attempts.c.run_key == run_key) & attempts.c.started_at.is_not(None)
    began = select(attempts.c.started_at).where(has_begun).order_by(attempts.c.attempt).limit(1)
    connection.execute(update(runs).where(is_run).values(started_at=began.scalar_subquery()))
    is_earlier = runs.c.last_event_at.is_(None) | (runs.c.last_event_at < last)
    connection.execute(update(runs).where(is_run, is_earlier).values(last_event_at=last))


def _record_statuses(connection: Connection, run_key: int, events: Sequence[Event]) -> None:
    """Move attempts forward by status events, never back, and the run with its newest attempt."""
    attempts = models.attempts
    known = select(attempts.c.attempt, attempts.c.status).where(attempts.c.run_key == run_key)
    ranks = {row.attempt: status_rank(row.status) for row in connection.execute(known)}
    moved: set[int] = set()
    for event in events:
        attempt = event["attempt"]
        if event["kind"] != "status" or status_rank(event["status"]) <= ranks[attempt]:
            continue
        ranks[attempt] = status_rank(event["status"])
        moved.add(attempt)
        ended_at = None if event["status"] in LIVE else datetime.fromisoformat(event["at"])
        reason = storable_text(event["reason"])
        values = {"status": event["status"], "status_reason": reason, "ended_at": ended_at}
        is_it = (attempts.c.run_key == run_key) & (attempts.c.attempt == attempt)
        connection.execute(update(attempts).where(is_it).values(values))
    _follow_newest_attempt(connection, run_key, moved)


def _record_config(connection: Connection, run_key: int, events: Sequence[Event]) -> None:
    """Add to the specification of a loop's run what it set after its start."""
    changed = {name: value for event in events if event["kind"] == "config" for name, value in event["config"].items()}
    if changed:
        runs = models.runs
        spec = connection.scalars(select(runs.c.spec).where(runs.c.run_key == run_key)).one()
        values = {"spec": spec | {"config": spec.get("config", {}) | changed}}
        connection.execute(update(runs).where(runs.c.run_key == run_key).values(values))


def _follow_newest_attempt(connection: Connection, run_key: int, moved: Set[int]) -> None:
    runs, attempts = models.runs, models.attempts
    run = connection.execute(select(runs.c.attempt, runs.c.status).where(runs.c.run_key == run_key)).one()
    query = select(attempts).where(attempts.c.run_key == run_key).order_by(attempts.c.attempt.desc()).limit(1)
    newest = connection.execute(query).one()
    is_further = newest.attempt in moved and status_rank(newest.status) > status_rank(run.status)
    if newest.attempt > run.attempt or is_further:
        names = ("attempt", "status", "status_reason", "ended_at")
        values = {name: newest._mapping[name] for name in names}
        connection.execute(update(runs).where(runs.c.run_key == run_key).values(values))


def read_position(database: Database, source: str) -> str | None:
    """Return the position from which to continue reading `source`, None at its start."""
    table = models.ingest_positions
    with database.read() as connection:
        return connection.scalar(select(table.c.position).where(table.c.source == source))


def save_position(connection: Connection, source: str, position: str) -> None:
    """Save the position from which to continue reading `source`."""
    table = models.ingest_positions
    connection.execute(delete(table).where(table.c.source == source))
    connection.execute(insert(table).values(source=source, position=position))


def unannounced_runs(database: Database) -> frozenset[str]:
    """Return the runs whose journal entries were not ingested yet."""
    table = models.ingest_positions
    with database.read() as connection:
        sources = connection.scalars(select(table.c.source).where(table.c.source.startswith(_UNANNOUNCED)))
        return frozenset(source.removeprefix(_UNANNOUNCED) for source in sources)


def forget_unannounced(connection: Connection, run_ids: Iterable[str]) -> None:
    """Save that the journal entries of these runs are ingested."""
    table = models.ingest_positions
    for run_id in run_ids:
        connection.execute(delete(table).where(table.c.source == _UNANNOUNCED + run_id))


class RepeatedSteps:
    """The events of a run whose step a later attempt repeats: they have no rows."""

    def __init__(self, connection: Connection, run_key: int) -> None:
        self._connection = connection
        self._run_key = run_key
        attempts = models.attempts
        known = select(attempts.c.attempt, attempts.c.resumed_from_step).where(attempts.c.run_key == run_key)
        self._resumed_from: dict[int, int | None] = {row[0]: row[1] for row in connection.execute(known)}

    def note(self, events: Sequence[Event]) -> bool:
        """Keep from new events where attempts resumed; remove rows of repeated steps and return whether any were."""
        num_left = 0
        for attempt, step in sorted(_resumptions(events).items()):
            known = self._resumed_from.get(attempt)
            if known is None or step < known:
                self._resumed_from[attempt] = step
                num_left += self._remove(attempt, step)
        return num_left > 0

    def __contains__(self, event: Event) -> bool:
        if event["kind"] == "questions":  # its step is that of a batch's first rollout; later attempts keep its numbers
            return False
        return "step" in event and any(
            later > event["attempt"] and resumed is not None and event["step"] > resumed
            for later, resumed in self._resumed_from.items()
        )

    def _remove(self, attempt: int, step: int) -> int:
        attempts, trajectories, texts = models.attempts, models.trajectories, models.trajectory_texts
        is_it = (attempts.c.run_key == self._run_key) & (attempts.c.attempt == attempt)
        self._connection.execute(update(attempts).where(is_it).values(resumed_from_step=step))

        def is_older(table: Table) -> ColumnElement[bool]:
            return and_(table.c.run_key == self._run_key, table.c.attempt < attempt, table.c.step > step)

        keys = select(trajectories.c.trajectory_key).where(is_older(trajectories))
        self._connection.execute(delete(texts).where(texts.c.trajectory_key.in_(keys)))
        marks = models.trajectory_marks
        ids = select(trajectories.c.attempt, trajectories.c.trajectory_id).where(is_older(trajectories))
        is_on_one = tuple_(marks.c.attempt, marks.c.trajectory_id).in_(ids)
        self._connection.execute(delete(marks).where(marks.c.run_key == self._run_key, is_on_one))
        return sum(
            self._connection.execute(delete(table).where(is_older(table))).rowcount for table in models.STEP_TABLES
        )


def _resumptions(events: Sequence[Mapping[str, Any]]) -> dict[int, int]:
    resumed_from: dict[int, int] = {}
    for event in events:
        if event["attempt"] == 1 or event["kind"] not in {"step", "evaluation", *recorded.KINDS_WITH_STEP}:
            continue
        if event["kind"] == "evaluation" and event["step"] > 0:
            continue
        step = max(event["step"] - 1, -1 if event["kind"] in recorded.KINDS_WITH_STEP else 0)
        resumed_from[event["attempt"]] = min(step, resumed_from.get(event["attempt"], step))
    return resumed_from
