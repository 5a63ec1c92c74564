"""The small files through which a worker and a supervisor know of each other, inside an attempt's folder.

`lock` is held by the worker for as long as it lives; `heartbeat.json` is its sign of life; `outcome.json` is the last
word on the attempt, written once, by the worker or, when that one is gone, by the supervisor.
"""

import json
import os
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from jobs.launchers.processes import ProcessIdentity
from jobs.status import RunStatus

LOCK_FILE = "lock"
HEARTBEAT_FILE = "heartbeat.json"
OUTCOME_FILE = "outcome.json"


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's sign of life: who it is, which step it is in, when it said so."""

    worker: ProcessIdentity
    status: RunStatus
    step: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended, with one sentence why where it is not the expected end."""

    status: RunStatus
    reason: str
    at: datetime


def write_heartbeat(attempt_path: Path, heartbeat: Heartbeat) -> None:
    """Replace the sign of life; readers see the old or the new one, never a part."""
    record = {
        **asdict(heartbeat.worker),
        "status": heartbeat.status.value,
        "step": heartbeat.step,
        "at": heartbeat.at.isoformat(timespec="milliseconds"),
    }
    _replace(attempt_path / HEARTBEAT_FILE, record)


def read_heartbeat(attempt_path: Path) -> Heartbeat | None:
    """Return the newest sign of life, None before the first."""
    record = _read(attempt_path / HEARTBEAT_FILE)
    try:
        worker = ProcessIdentity(int(record["pid"]), float(record["started_seconds"]), str(record["boot_id"]))
        at = datetime.fromisoformat(record["at"])
        return Heartbeat(worker, RunStatus(record["status"]), int(record["step"]), at)
    except (KeyError, ValueError, TypeError):
        return None


def write_outcome(attempt_path: Path, status: RunStatus, reason: str) -> Outcome:
    """Write the last word on an attempt, unless there is one already; return the one that stands."""
    existing = read_outcome(attempt_path)
    if existing is not None:
        return existing
    outcome = Outcome(status, reason, datetime.now(UTC))
    _replace(
        attempt_path / OUTCOME_FILE,
        {"status": status.value, "reason": reason, "at": outcome.at.isoformat(timespec="milliseconds")},
        is_durable=True,
    )
    return outcome


def read_outcome(attempt_path: Path) -> Outcome | None:
    """Return the last word on an attempt, None while there is none."""
    record = _read(attempt_path / OUTCOME_FILE)
    try:
        return Outcome(RunStatus(record["status"]), str(record["reason"]), datetime.fromisoformat(record["at"]))
    except (KeyError, ValueError, TypeError):
        return None


def _replace(path: Path, record: dict[str, Any], is_durable: bool = False) -> None:
    unfinished = path.with_name(path.name + ".tmp")
    with unfinished.open("w", encoding="utf-8") as file:
        json.dump(record, file)
        if is_durable:
            file.flush()
            os.fsync(file.fileno())
    unfinished.replace(path)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
