"""The small files of an attempt's folder through which worker and supervisor communicate.

The worker holds `lock` and renews `heartbeat.json` while it lives. `outcome.json` says how the attempt ended; it is
written once, by the worker or, if the worker is gone, by the supervisor. `lost` is the supervisor's guess: it counts
until a heartbeat comes after it, and the worker may replace it.

The gate: only the newest attempt of a run writes, and only until it has another outcome than `lost`. For example:

1. Attempt 1 is suspended with its machine at step 40, and no heartbeat comes any more.
2. The supervisor declares it lost: it writes `attempts/0001/outcome.json`. If the machine woke up now, attempt 1 would
   continue, and the run would be running again.
3. The user resumes. The supervisor claims `attempts/0002`, by `mkdir`, which succeeds once; its worker starts from the
   checkpoint of step 25 and records steps 26, 27 and so on.
4. The machine wakes up. Before attempt 1 writes a heartbeat, an event or the name of a checkpoint, `exit_if_fenced`
   sees the folder of attempt 2 and ends the process. The run has one history from step 25 on.
5. Steps 26 to 40 that attempt 1 had recorded stay in its files; `db/ingest/events.py` leaves them out of the database.

A write that has passed the gate before step 3 may still land after it. So each save of a checkpoint fills a hidden
folder of its own and passes the gate again before the rename, and events are in the folder of their attempt.
"""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.control import Phase
from exgrpo.jobs.runs.processes import ProcessIdentity
from exgrpo_core.bounded_json import UnreadableFileError, read_json, read_plain, seal, unseal
from exgrpo_core.durable_files import write_whole
from exgrpo_core.faults import Fault, FaultKind, describe_fault
from exgrpo_core.recording.attempt_gate import OUTCOME_FILE
from exgrpo_core.recording.record_file import end_of_members, list_records
from exgrpo_core.recording.run_status import ENDED, RunStatus

logger = logging.getLogger(__name__)

HEARTBEAT_FILE = "heartbeat.json"


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
    """The worker's largest memory so far, bytes."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """How an attempt ended; `reason` is one sentence unless it ended as expected."""

    status: RunStatus
    reason: str
    at: datetime
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Bytes of what the attempt had recorded whole, by the name of the file."""
    fields: tuple[str, ...] = ()
    """Fields of the specification to change, of a failure that names some."""
    fault: Fault | None = None
    """What is wrong with the file, if nobody knows how the attempt ended."""


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


def write_outcome(
    attempt_path: Path, status: RunStatus, reason: str, at: datetime | None = None, fields: Sequence[str] = ()
) -> AttemptEnd:
    """Write the outcome of an attempt that ended `at` or now, unless it has one; return the attempt's outcome.

    An end that is known replaces `lost`, which was a guess; a damaged file is never replaced.
    """
    existing = read_outcome(attempt_path)
    if existing is not None and (existing.fault or existing.status is not RunStatus.LOST or status is RunStatus.LOST):
        return existing
    outcome = AttemptEnd(status, reason, at or datetime.now(UTC), _recorded_sizes(attempt_path), tuple(fields))
    record = {
        "status": status.value,
        "reason": reason,
        "at": outcome.at.isoformat(timespec="milliseconds"),
        "sizes": outcome.sizes,
        "fields": outcome.fields,
    }
    write_whole(attempt_path / OUTCOME_FILE, seal(json.dumps(record).encode()), syncs_folder=False)
    return outcome


def write_outcome_of_lost(attempt_path: Path, status: RunStatus, reason: str, fields: Sequence[str] = ()) -> AttemptEnd:
    """Write the outcome for a worker that cannot; its end is the time of its last heartbeat.

    Without a heartbeat it is now by the system's clock, which may have been corrected since this process began.
    """
    heartbeat = read_heartbeat(attempt_path)
    return write_outcome(attempt_path, status, reason, heartbeat.at if heartbeat else datetime.now(UTC), fields)


def read_outcome(attempt_path: Path) -> AttemptEnd | None:
    """Return how an attempt ended, None while it has no outcome, or was declared lost before its newest heartbeat.

    Of a damaged file, which is never overwritten, the outcome is `lost`, with the reason.
    """
    path = attempt_path / OUTCOME_FILE
    try:
        record = unseal(read_plain(path))
        at = datetime.fromisoformat(record["at"]).astimezone(UTC)
        sizes = {str(name): int(size) for name, size in record.get("sizes", {}).items()}
        status = RunStatus(record["status"])
        if status not in ENDED:
            raise UnreadableFileError(f"it says {status}, which is no end.")
        heartbeat = read_heartbeat(attempt_path) if status is RunStatus.LOST else None
        if heartbeat is not None and heartbeat.at > at:
            return None
        fields = tuple(map(str, record.get("fields", ())))
        return AttemptEnd(status, str(record["reason"]), at, sizes, fields)
    except FileNotFoundError:
        return None
    except (OSError, KeyError, ValueError, TypeError, AttributeError, OverflowError) as error:
        why = str(error) if isinstance(error, UnreadableFileError) else type(error).__name__
        fault = Fault(FaultKind.UNREADABLE, f"attempts/{attempt_path.name}/{OUTCOME_FILE}", details=why)
        reason = f"How the attempt ended is unknown. {describe_fault(fault)} Resume the run, or use another copy."
        return AttemptEnd(RunStatus.LOST, reason, _changed_at(path), fault=fault)


def _changed_at(path: Path) -> datetime:
    try:
        return datetime.fromtimestamp(path.stat().st_mtime, UTC)
    except OSError:
        return datetime.now(UTC)


def _recorded_sizes(attempt_path: Path) -> dict[str, int]:
    """Return where the last whole member of each of the attempt's files ends."""
    return {record.path.name: end_of_members(record.path) for record in list_records(attempt_path)}


def _replace(path: Path, record: dict[str, Any]) -> None:
    write_whole(path, json.dumps(record), is_durable=False, syncs_folder=False)


def _read(path: Path) -> dict[str, Any]:
    try:
        return read_json(path)
    except (OSError, ValueError):
        return {}


PLAN_FILE = "plan.json"


def write_plan(folder: Path, num_pieces: int) -> None:
    """Write how many questions or votes a job has into one of its folders, for displays of its progress."""
    write_whole(folder / PLAN_FILE, json.dumps({"num_pieces": num_pieces}))


def read_plan(folder: Path) -> int | None:
    """Return the number of questions or votes, None while it is unknown."""
    num_pieces = _read(folder / PLAN_FILE).get("num_pieces")
    return num_pieces if isinstance(num_pieces, int) and num_pieces >= 0 else None
