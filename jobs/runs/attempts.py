"""The small files of an attempt's folder through which worker and supervisor communicate.

The worker holds `lock` and renews `heartbeat.json` while it lives. `outcome.json` says how the attempt ended; it is
written once, by the worker or, if the worker is gone, by the supervisor.
"""

import contextlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exgrpo_core.durable_files import reserve, write_whole
from jobs.runs.clock import monotonic_utc_now
from jobs.runs.processes import ProcessIdentity
from jobs.runs.status import RunStatus
from jobs.runs.stop_time import Phase

LOCK_FILE = "lock"
HEARTBEAT_FILE = "heartbeat.json"
OUTCOME_FILE = "outcome.json"
OUTCOME_BYTES = 4096
"""More than the size of an outcome."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's heartbeat: its process, state and step at a time, what it does and how long that took of late."""

    worker: ProcessIdentity
    status: RunStatus
    step: int
    at: datetime
    phase: Phase | None = None
    phase_seconds: Mapping[Phase, float] = field(default_factory=dict)
    """The longest recent time of each phase that has ended once."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended; `reason` is one sentence unless it ended as expected."""

    status: RunStatus
    reason: str
    at: datetime


def write_heartbeat(attempt_path: Path, heartbeat: Heartbeat) -> None:
    """Replace the heartbeat; readers see the old or the new one, never a part."""
    record = {
        **asdict(heartbeat.worker),
        "status": heartbeat.status.value,
        "step": heartbeat.step,
        "at": heartbeat.at.isoformat(timespec="milliseconds"),
        "phase": heartbeat.phase,
        "phase_seconds": heartbeat.phase_seconds,
    }
    _replace(attempt_path / HEARTBEAT_FILE, record)


def read_heartbeat(attempt_path: Path) -> Heartbeat | None:
    """Return the newest heartbeat, None before the first."""
    record = _read(attempt_path / HEARTBEAT_FILE)
    try:
        worker = ProcessIdentity(int(record["pid"]), float(record["started_seconds"]), str(record["boot_id"]))
        at = datetime.fromisoformat(record["at"])
        phase = record.get("phase")
        seconds = {Phase(name): float(value) for name, value in record.get("phase_seconds", {}).items()}
        status, step = RunStatus(record["status"]), int(record["step"])
        return Heartbeat(worker, status, step, at, None if phase is None else Phase(phase), seconds)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None


def reserve_outcome(attempt_path: Path) -> None:
    """Reserve the space that the outcome needs, so that it can be written even if the disk is full by then."""
    with contextlib.suppress(OSError):
        reserve(attempt_path / OUTCOME_FILE, OUTCOME_BYTES)


def write_outcome(attempt_path: Path, status: RunStatus, reason: str, at: datetime | None = None) -> Outcome:
    """Write the outcome of an attempt that ended `at` or now, unless it has one; return the attempt's outcome."""
    existing = read_outcome(attempt_path)
    if existing is not None:
        return existing
    outcome = Outcome(status, reason, at or monotonic_utc_now())
    _replace(
        attempt_path / OUTCOME_FILE,
        {"status": status.value, "reason": reason, "at": outcome.at.isoformat(timespec="milliseconds")},
        is_durable=True,
    )
    return outcome


def write_outcome_of_lost(attempt_path: Path, status: RunStatus, reason: str) -> Outcome:
    """Write the outcome for a worker that cannot; its end is the time of its last heartbeat.

    Without a heartbeat it is now by the system's clock, which may have been corrected since this process began.
    """
    heartbeat = read_heartbeat(attempt_path)
    return write_outcome(attempt_path, status, reason, heartbeat.at if heartbeat else datetime.now(UTC))


def read_outcome(attempt_path: Path) -> Outcome | None:
    """Return how an attempt ended, None while it has no outcome."""
    record = _read(attempt_path / OUTCOME_FILE)
    try:
        return Outcome(RunStatus(record["status"]), str(record["reason"]), datetime.fromisoformat(record["at"]))
    except (KeyError, ValueError, TypeError):
        return None


def _replace(path: Path, record: dict[str, Any], is_durable: bool = False) -> None:
    write_whole(path, json.dumps(record), is_durable=is_durable, syncs_folder=False)


def _read(path: Path) -> dict[str, Any]:
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
