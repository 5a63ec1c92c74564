"""The attempt of a run folder into which a loop records: one a start, several ranks in one, locked while it lives."""

import contextlib
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from exgrpo_core.bounded_json import parse_json, read_json, seal
from exgrpo_core.durable_files import write_whole
from exgrpo_core.errors import InputError
from exgrpo_core.recording.attempt_gate import LOCK_FILE, OUTCOME_FILE, FileLock, is_locked, reserve_outcome, this_boot
from exgrpo_core.recording.record_file import record_path
from exgrpo_core.recording.run_folder import RUN_ID, RunFolder, create_run_folder, make_run_id

MAX_NAME = 80
_WAIT_SECONDS = 60.0
"""So long the first rank may take to make the folder."""
_POLL_SECONDS = 0.05


@dataclass(slots=True)
class Attempt:
    """A rank's part in an attempt; the first rank holds the lock and writes how it ended."""

    path: Path
    rank: int
    num_ranks: int
    _lock: FileLock | None = None

    def take(self) -> "Attempt":
        """Take the lock and reserve the space of the outcome, as the first rank.

        Raises:
            InputError: Another process records here.
            OSError: The files cannot be written.
        """
        if self.rank:
            return self
        self._lock = FileLock(self.path / LOCK_FILE)
        with contextlib.suppress(OSError):  # a file system without locks: a reader goes by the growth of the files
            if not self._lock.acquire():
                raise _recorded_elsewhere(self.path)
        (self.path / LOCK_FILE).write_text(this_boot(), encoding="ascii")
        reserve_outcome(self.path)
        return self

    def end(self, status: str, reason: str) -> None:
        """Write how the attempt ended, as the first rank, and release the lock.

        Raises:
            OSError: It cannot be written.
        """
        if self.rank:
            return
        record = {"status": status, "reason": reason, "at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        try:
            write_whole(self.path / OUTCOME_FILE, seal(json.dumps(record).encode()))
        finally:
            self.release()

    def release(self) -> None:
        """Release the lock of this process."""
        if self._lock is not None:
            self._lock.release()


def open_attempt(folder: Path, spec: dict[str, object], run_id: str | None, rank: int, num_ranks: int) -> Attempt:
    """Return a new attempt of a new run, or of the run that is there already; of later ranks the first rank's.

    Raises:
        InputError: The name or id cannot be a run's, another process records it, or the first rank made no attempt.
        OSError: The folder cannot be written.
    """
    name = str(spec["name"])
    if not 1 <= len(name) <= MAX_NAME or "\0" in name:
        raise InputError(f"name: expected 1 to {MAX_NAME} characters, got {len(name)}.")
    if run_id is not None and RUN_ID.fullmatch(run_id) is None:
        raise InputError(f"run_id: expected letters, digits and . _ + -, at most 80, got {run_id[:80]!r}.")
    if rank:
        if run_id is None:
            raise InputError("run_id: pass the same one on every rank, such as the id of the job.")
        return _joined(folder / run_id, rank, num_ranks)
    path = folder / (run_id or make_run_id(datetime.now(UTC)))
    content = json.dumps(spec, ensure_ascii=False, indent=2).encode("utf-8", "backslashreplace")
    if not path.exists():
        create_run_folder(folder, path.name, name, content)
    else:
        _refuse_other_settings(path, parse_json(content))
    run = RunFolder(path)
    newest = run.newest_attempt()
    with contextlib.suppress(OSError):  # a file system without locks
        if is_locked(run.attempt_path(newest) / LOCK_FILE):
            raise _recorded_elsewhere(run.attempt_path(newest))
    return Attempt(run.attempt_path(run.claim_attempt(newest + 1)), rank, num_ranks).take()


def _refuse_other_settings(path: Path, spec: dict[str, Any]) -> None:
    """Refuse to record into a run that a worker trains, or that began with other settings; none are the same."""
    known = read_json(path / "spec.json")
    if known.get("kind") != spec["kind"]:
        raise InputError(f"run_id: {path.name} is no run that a loop recorded; give another id.")
    before, now = known.get("config", {}), spec.get("config", {})
    changed = [name for name in {**before, **now} if before.get(name) != now.get(name)]
    if now and changed:
        raise InputError(
            f"config: {changed[0]} differs from what {path.name} began with; give the same, or another run_id."
        )


def _recorded_elsewhere(attempt_path: Path) -> InputError:
    return InputError(f"{attempt_path}: another process records here; end it, or start another run.")


def newest_attempt(path: Path) -> Attempt:
    """Return the newest attempt of a run of one rank, to append to it, ended or not.

    Raises:
        InputError: There is none, or another process records.
        OSError: It cannot be written.
    """
    run = RunFolder(path)
    attempt_path = run.attempt_path(run.newest_attempt())
    if not record_path(attempt_path, 0, 1).exists():
        raise InputError(f"{path}: expected the folder of a recorded run.")
    attempt = Attempt(attempt_path, 0, 1).take()
    (attempt_path / OUTCOME_FILE).unlink(missing_ok=True)
    return attempt


def _joined(path: Path, rank: int, num_ranks: int) -> Attempt:
    """Return the newest attempt that this rank did not record in, once it is there."""
    run, give_up_at = RunFolder(path), time.monotonic() + _WAIT_SECONDS
    while time.monotonic() < give_up_at:
        newest = run.attempt_path(run.newest_attempt())
        if newest.is_dir() and not record_path(newest, rank, num_ranks).exists():
            return Attempt(newest, rank, num_ranks)
        time.sleep(_POLL_SECONDS)
    raise InputError(f"{path}: rank 0 started no run here within {_WAIT_SECONDS:.0f} s; let it start the run too.")
