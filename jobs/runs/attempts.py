"""The small files of an attempt's folder through which worker and supervisor communicate.

The worker holds `lock` and renews `heartbeat.json` while it lives. `outcome.json` says how the attempt ended; it is
written once, by the worker or, if the worker is gone, by the supervisor.
"""

import contextlib
import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exgrpo_core.bounded_json import UnreadableFileError, read_json, read_plain
from exgrpo_core.checksums import seal, unseal
from exgrpo_core.durable_files import reserve, write_whole
from jobs.runs.clock import monotonic_utc_now
from jobs.runs.processes import ProcessIdentity
from jobs.runs.status import ENDED, RunStatus
from jobs.runs.stop_time import Phase

LOCK_FILE = "lock"
HEARTBEAT_FILE = "heartbeat.json"
OUTCOME_FILE = "outcome.json"
MAX_EVENT_FILE_BYTES = 1 << 30
DAMAGED_OUTCOME = f"{OUTCOME_FILE} is damaged, so how the attempt ended is unknown; resume it or use another copy:"
_OUTCOME_FIELDS = frozenset({"status", "reason", "at"})
"""Those of older versions, which wrote no checksum."""
_SEQUENCE_NUMBER = re.compile(rb'{"seq":(\d{1,15}),')
OUTCOME_BYTES = 4096
"""More than the size of an outcome."""


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A worker's heartbeat: its process, state and step at a time, what it does and how long that took recently."""

    worker: ProcessIdentity
    status: RunStatus
    step: int
    at: datetime
    phase: Phase | None = None
    phase_seconds: Mapping[Phase, float] = field(default_factory=dict)
    """The longest recent time of each phase that has ended once."""
    peak_memory: int = 0
    """The worker's largest memory so far, bytes; 0 in heartbeats of older versions."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attempt ended; `reason` is one sentence unless it ended as expected."""

    status: RunStatus
    reason: str
    at: datetime
    num_events: int | None = None
    """Events that the attempt had recorded; None of older versions."""
    is_readable: bool = True
    """Whether this is what the file says; False if it is damaged, and nobody knows how the attempt ended."""


def write_heartbeat(attempt_path: Path, heartbeat: Heartbeat) -> None:
    """Replace the heartbeat; readers see the old or the new one, never a part."""
    record = {
        **asdict(heartbeat.worker),
        "status": heartbeat.status.value,
        "step": heartbeat.step,
        "at": heartbeat.at.isoformat(timespec="milliseconds"),
        "phase": heartbeat.phase,
        "phase_seconds": heartbeat.phase_seconds,
        "peak_memory": heartbeat.peak_memory,
    }
    _replace(attempt_path / HEARTBEAT_FILE, record)


def read_heartbeat(attempt_path: Path) -> Heartbeat | None:
    """Return the newest heartbeat, None before the first."""
    record = _read(attempt_path / HEARTBEAT_FILE)
    try:
        worker = ProcessIdentity(int(record["pid"]), float(record["started_seconds"]), str(record["boot_id"]))
        at = datetime.fromisoformat(record["at"]).astimezone(UTC)
        phase = record.get("phase")
        seconds = {Phase(name): float(value) for name, value in record.get("phase_seconds", {}).items()}
        status, step = RunStatus(record["status"]), max(0, int(record["step"]))
        peak_memory = int(record.get("peak_memory", 0))
        return Heartbeat(worker, status, step, at, None if phase is None else Phase(phase), seconds, peak_memory)
    except (KeyError, ValueError, TypeError, AttributeError, OverflowError):
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
    outcome = Outcome(status, reason, at or monotonic_utc_now(), _last_event(attempt_path))
    record = {
        "status": status.value,
        "reason": reason,
        "at": outcome.at.isoformat(timespec="milliseconds"),
        "num_events": outcome.num_events,
    }
    write_whole(attempt_path / OUTCOME_FILE, seal(json.dumps(record).encode()), syncs_folder=False)
    return outcome


def write_outcome_of_lost(attempt_path: Path, status: RunStatus, reason: str) -> Outcome:
    """Write the outcome for a worker that cannot; its end is the time of its last heartbeat.

    Without a heartbeat it is now by the system's clock, which may have been corrected since this process began.
    """
    heartbeat = read_heartbeat(attempt_path)
    return write_outcome(attempt_path, status, reason, heartbeat.at if heartbeat else datetime.now(UTC))


def read_outcome(attempt_path: Path) -> Outcome | None:
    """Return how an attempt ended, None while it has no outcome.

    Of a damaged file, which is never overwritten, the outcome is `lost`, with the reason.
    """
    path = attempt_path / OUTCOME_FILE
    try:
        record = unseal(read_plain(path), _OUTCOME_FIELDS)
        at, num_events = datetime.fromisoformat(record["at"]).astimezone(UTC), record.get("num_events")
        status = RunStatus(record["status"])
        if status not in ENDED:
            raise UnreadableFileError(f"it says {status}, which is no end.")
        return Outcome(status, str(record["reason"]), at, num_events and int(num_events))
    except FileNotFoundError:
        return None
    except (OSError, KeyError, ValueError, TypeError, OverflowError) as error:
        why = error if isinstance(error, UnreadableFileError) else f"it cannot be read ({type(error).__name__})."
        return Outcome(RunStatus.LOST, f"{DAMAGED_OUTCOME} {why}", _changed_at(path), is_readable=False)


def _changed_at(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return datetime.now(UTC)


def _last_event(attempt_path: Path) -> int | None:
    """Return the number of the last whole event in the attempt's files, 0 if there is none, None if it is damaged."""
    for path in sorted(attempt_path.glob("events-*.jsonl"), reverse=True):
        try:
            lines = read_plain(path, MAX_EVENT_FILE_BYTES)
        except (OSError, UnreadableFileError):
            return None
        whole = lines[: lines.rfind(b"\n")]
        if whole:
            match = _SEQUENCE_NUMBER.match(whole, whole.rfind(b"\n") + 1)
            return int(match[1]) if match else None
    return 0


def _replace(path: Path, record: dict[str, Any]) -> None:
    write_whole(path, json.dumps(record), is_durable=False, syncs_folder=False)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}
