"""Events that are worth a message, from the rows that pages show and the free space of the disk."""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from db.rows.runs import RunRow
from jobs.machine.hardware import GIB, MIN_FREE_GIB
from jobs.runs.control import RunStatus
from jobs.runs.report import HEALTH_SENTENCES

ALERTED_STATUSES = {RunStatus.FAILED.value: "failed", RunStatus.LOST.value: "was lost"}
ALERTED_BADGES = {"stalled": "stalls", "entropy_collapse": "has collapsed", "empty_buffer": "has an empty buffer"}
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
    for badge in row.health:
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
