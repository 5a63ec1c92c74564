"""A thread of the supervisor that reads the database and sends messages; its failures affect nothing else."""

import json
import logging
import os
import shutil
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import UNAVAILABLE_ERRORS, Database
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import list_runs
from exgrpo.db.rows.runs import Badge, RunRow
from exgrpo.jobs.execution.alerts.destinations import (
    FILE_VARIABLE,
    URLS_VARIABLE,
    AlertError,
    Destination,
    read_destinations,
)
from exgrpo.jobs.machine.hardware import GIB, MIN_FREE_GIB
from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER
from exgrpo.jobs.runs.report import HEALTH_SENTENCES
from exgrpo_core.bounded_json import parse_json
from exgrpo_core.durable_files import append_line
from exgrpo_core.recording.run_status import RunStatus

ALERTED_STATUSES = {RunStatus.FAILED.value: "failed", RunStatus.LOST.value: "was lost"}
ALERTED_BADGES: dict[Badge, str] = {
    "stalled": "stalls",
    "no_reward": "earns no reward",
    "no_gradient": "learns nothing",
    "entropy_collapse": "has collapsed",
    "empty_buffer": "has an empty buffer",
}
MAX_AGE = timedelta(days=1)
"""Older events are not sent when alerts are switched on or a supervisor restarts after a long time."""
MIN_STALL = timedelta(minutes=15)
"""Loading a model, starting Ray and validation take longer than the badge waits, and need no message."""
STALL_STEPS = 20


@dataclass(frozen=True, slots=True)
class AlertEvent:
    """Something that happened once: the same `key` never happens again."""

    key: str
    title: str
    body: str


def run_alert_events(rows: Iterable[RunRow], now: datetime) -> list[AlertEvent]:
    """Return the events of runs; made-up runs and events older than a day are left out."""
    return [
        alert_event
        for row in rows
        if not row.is_synthetic and now - (row.ended_at or row.last_event_at or row.created_at) <= MAX_AGE
        for alert_event in _alert_events_of(row, now)
    ]


def disk_alert_events(runs_root: Path, now: datetime) -> list[AlertEvent]:
    """Return an event a day while the disk of the runs is nearly full."""
    free = shutil.disk_usage(runs_root).free / GIB
    if free >= MIN_FREE_GIB:
        return []
    body = f"{free:.1f} GiB are free where runs are written ({runs_root}); free some space before a run fails."
    return [AlertEvent(f"disk_low/{now.astimezone(UTC):%Y-%m-%d}", "The disk of the runs is nearly full", body)]


def _alert_events_of(row: RunRow, now: datetime) -> list[AlertEvent]:
    events = []
    if row.status in ALERTED_STATUSES:
        event = ALERTED_STATUSES[row.status]
        events.append(_alert_event(row, f"{row.attempt}/{row.status}", event, row.status_reason))
    # Without reward nothing is stored either: one message is enough.
    told = [badge for badge in row.health if badge != "empty_buffer" or "no_reward" not in row.health]
    for badge in told:
        if badge in ALERTED_BADGES and (badge != "stalled" or _is_long_stalled(row, now)):
            # A run that continues after a stall may stall again, which is another event.
            moment = f"/{row.last_event_at}" if badge == "stalled" else ""
            key = f"{row.attempt}/{badge}{moment}"
            events.append(_alert_event(row, key, ALERTED_BADGES[badge], f"{HEALTH_SENTENCES[badge]}.".capitalize()))
    return events


def _is_long_stalled(row: RunRow, now: datetime) -> bool:
    timeout = max(MIN_STALL, STALL_STEPS * timedelta(seconds=row.seconds_per_step or 0.0))
    return row.last_event_at is not None and now - row.last_event_at > timeout


def _alert_event(row: RunRow, key: str, event: str, sentence: str) -> AlertEvent:
    steps = f"Step {row.step} of {row.num_steps}, attempt {row.attempt}."
    body = "\n".join(filter(None, [sentence, steps, f"Run {row.run_id}."]))
    return AlertEvent(f"{row.run_id}/{key}", f"{row.name} {event}", body)


logger = logging.getLogger(__name__)

SENT_LOG_FILE = "alerts.jsonl"
POLL_SECONDS = 10.0
RETRY_SECONDS = 60.0
_END_SECONDS = 5.0
"""`exgrpo up` waits ten seconds for its supervisor, which has runs to release too."""


class SentLog:
    """Append-only log of messages that were sent, so that a restart sends none again.

    It has events and fingerprints of destinations, never their URLs.
    """

    def __init__(self, runs_root: Path) -> None:
        self._path = runs_root / WORKBENCH_FOLDER / SENT_LOG_FILE
        self._sent = self._read()

    def has(self, key: str, destination: str) -> bool:
        """Whether the message was sent to the destination."""
        return (key, destination) in self._sent

    def add(self, key: str, destination: str) -> None:
        """Record that the message was sent, on disk before it returns; while the disk is full, in memory only."""
        self._sent.add((key, destination))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        self._path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self._path, json.dumps({"at": at, "key": key, "destination": destination}).encode())

    def _read(self) -> set[tuple[str, str]]:
        sent = set()
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return set()
        for line in lines:
            try:
                record = parse_json(line)
                sent.add((str(record["key"]), str(record["destination"])))
            except (ValueError, KeyError, TypeError):
                continue
        return sent


class AlertWatch:
    """Sends each event once to each destination; after a failure again, a minute later.

    The first poll opens the destinations that `environment` names, which may wait for host names and files.
    """

    def __init__(self, runs_root: Path, database_url: str | None, environment: Mapping[str, str]) -> None:
        self._runs_root = runs_root
        self._url = database_url
        self._environment = dict(environment)
        self._destinations: list[Destination] | None = None
        self._sent_log: SentLog | None = None
        self._database: Database | None = None
        self._retry_at: dict[tuple[str, str], float] = {}
        self._last_error = ""
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)

    def start(self) -> None:
        """Poll every ten seconds in a thread."""
        self._thread.start()

    def close(self) -> None:
        """Poll once more and end; a destination that does not answer is not waited for."""
        self._ends.set()
        self._thread.join(_END_SECONDS)

    def poll(self) -> None:
        """Send the events that were not sent yet.

        Raises:
            AlertError: The destinations are set up wrongly.
            DatabaseError: The database cannot be opened.
            OSError: The free space cannot be read, or the log of sent messages not read or written.
        """
        if self._destinations is None:
            self._destinations = read_destinations(dict(self._environment))
        if self._sent_log is None:
            self._sent_log = SentLog(self._runs_root)
        now = datetime.now(UTC)
        for alert_event in [*disk_alert_events(self._runs_root, now), *run_alert_events(self._rows(now), now)]:
            for destination in self._destinations:
                self._send(alert_event, destination, self._sent_log)

    def _run(self) -> None:
        is_last = False
        while not is_last:
            is_last = self._ends.wait(POLL_SECONDS)
            try:
                self.poll()
                self._last_error = ""
            except AlertError as error:
                logger.error("No alerts are sent: %s", error)
                return
            except Exception as error:  # noqa: BLE001 - alerts must never end the supervisor
                self._log(error)
                self._close_database()
        self._close_database()

    def _log(self, error: Exception) -> None:
        """Log an error once; the supervisor itself reports an unavailable database."""
        name = type(error).__name__
        if name != self._last_error and not isinstance(error, UNAVAILABLE_ERRORS):
            logger.warning("Alerts are late: %s; trying again.", name)
        self._last_error = name

    def _rows(self, now: datetime) -> list[RunRow]:
        if self._database is None:
            self._database = open_database(self._url, self._runs_root, checks_schema=False)
        return list_runs(self._database, RunFilter(is_archived=None, ended_after=now - MAX_AGE), limit=None)

    def _send(self, alert_event: AlertEvent, destination: Destination, sent_log: SentLog) -> None:
        message = (alert_event.key, destination.fingerprint)
        if sent_log.has(*message) or time.monotonic() < self._retry_at.get(message, 0.0):
            return
        if destination.send(alert_event.title, alert_event.body):
            self._retry_at.pop(message, None)
            sent_log.add(*message)
            return
        if message not in self._retry_at:
            logger.warning(
                "Alert destination %s did not accept a message; trying again every minute.", destination.name
            )
        self._retry_at[message] = time.monotonic() + RETRY_SECONDS

    def _close_database(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


def watch_from_environment(runs_root: Path, database_url: str | None) -> AlertWatch | None:
    """Start sending alerts if the environment names destinations; the thread logs errors in them.

    Removes the variable with URLs, so that no child process inherits it.
    """
    named = {URLS_VARIABLE: os.environ.pop(URLS_VARIABLE, ""), FILE_VARIABLE: os.environ.get(FILE_VARIABLE, "")}
    if not any(named.values()):
        return None
    watch = AlertWatch(runs_root, database_url, named)
    watch.start()
    return watch
