"""What the files beside the database contain: the runs root, logs, the supervisor's heartbeat."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from app import settings
from app.formats import as_utc
from app.queries.answers import ask
from db.queries import runs
from exgrpo_core.bounded_json import open_plain, read_json

SUPERVISOR_LOST_SECONDS = 15.0
_LOG_BYTES = 128 * 1024


def current_runs_root() -> str:
    """Return the folder that holds the runs, part of the key of kept answers."""
    return str(settings.current().runs_root)


def has_folder(run_id: str) -> bool:
    """Return whether the runs root has a run of this id, even if the database does not know it yet."""
    return _run_file(run_id, "spec.json") is not None


def read_log_tail(run_id: str, num_lines: int) -> list[str]:
    """Return the last lines of a run's log, unchanged; none if there is no log yet."""
    path = _run_file(run_id, "log.txt")
    if path is None or ask(runs.get_run, run_id) is None:
        return []
    try:
        with open_plain(path) as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            return file.read().decode("utf-8", errors="replace").splitlines()[-num_lines:]
    except OSError:
        return []


def _run_file(run_id: str, name: str) -> Path | None:
    """Return a file of a run; None if it does not exist or lies outside the runs root, by id or by a link."""
    root = settings.current().runs_root.resolve()
    try:
        path = (root / run_id / name).resolve()
        return path if path.parent.parent == root and path.is_file() else None
    except (OSError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class SupervisorHeartbeat:
    """The newest heartbeat of a supervisor; `since` is its start, None if the file lacks it."""

    pid: int
    at: datetime
    since: datetime | None


def supervisor_heartbeat() -> SupervisorHeartbeat | None:
    """Return the newest heartbeat of a supervisor, or None if none ever ran here."""
    path = settings.current().runs_root / "workbench" / "supervisor.json"
    try:
        record = read_json(path)
        since = datetime.fromisoformat(record["since"]) if "since" in record else None
        return SupervisorHeartbeat(int(record["pid"]), datetime.fromisoformat(record["at"]), since)
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None


def supervisor_age_seconds() -> float | None:
    """Return the seconds since the supervisor's last heartbeat, or None if it never ran here."""
    heartbeat = supervisor_heartbeat()
    return None if heartbeat is None else (datetime.now(UTC) - as_utc(heartbeat.at)).total_seconds()
