"""The folder of a new run: it appears whole, with its specification and its description."""

import contextlib
import json
import os
import re
import secrets
import shutil
from datetime import UTC, datetime
from pathlib import Path
from zlib import crc32

from exgrpo_core.bounded_json import seal
from exgrpo_core.durable_files import sync, write_whole
from exgrpo_core.errors import InputError

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")
_ATTEMPT = re.compile(r"[0-9]{4,9}")
_MAX_ATTEMPT = 99_999
"""A larger number in a file, which may be another user's, is none: attempts up to it are looked for one by one."""
_STARTUP_BYTES = 1 << 16
"""Space for the log, the heartbeat, the outcome and the first events of an attempt."""


class AttemptClaimedError(InputError, ValueError):
    """Another process has claimed this attempt."""


class RunFolder:
    """The folder of one run and its attempts. Paths are returned even if the files do not exist yet."""

    def __init__(self, path: Path) -> None:
        self.path = Path(path)

    def attempt_path(self, attempt: int) -> Path:
        """Return the folder of one attempt."""
        return self.path / "attempts" / f"{attempt:04d}"

    def attempts(self) -> list[int]:
        """Return the numbers of all attempts that were claimed, in order."""
        try:
            names = os.listdir(self.path / "attempts")
        except FileNotFoundError:
            return []
        return sorted(int(name) for name in names if _ATTEMPT.fullmatch(name))

    def newest_attempt(self) -> int:
        """Return the number of the newest attempt, 0 before the first; its folder may have been lost since."""
        return max([*self.attempts(), read_attempt_number(self._claimed_path)])

    def claim_attempt(self, attempt: int | None = None) -> int:
        """Make the folder of a new attempt and return its number; no two callers get the same number.

        Raises:
            AttemptClaimedError: The given `attempt` is claimed already.
            OSError: There is no space for the first files of a worker; nothing is claimed.
        """
        self._try_disk_space()
        number = self.newest_attempt() + 1 if attempt is None else attempt
        while True:
            try:
                self.attempt_path(number).mkdir(parents=True, mode=0o700)
            except FileExistsError:
                if attempt is not None:
                    raise AttemptClaimedError(f"{self.attempt_path(number)}: is claimed already.") from None
                number += 1
            else:
                sync(self.path / "attempts")
                # A run whose attempts are lost later is not taken for one that never began.
                with contextlib.suppress(OSError):
                    write_whole(self._claimed_path, str(number))
                return number

    def _try_disk_space(self) -> None:
        """Try to write `_STARTUP_BYTES`: a full disk may have space for a folder, but not for the first files."""
        path = self.path / "space.tmp"
        try:
            path.write_bytes(b"\xff" * _STARTUP_BYTES)
        finally:
            path.unlink(missing_ok=True)

    @property
    def _claimed_path(self) -> Path:
        return self.path / "control" / "claimed"


def read_attempt_number(path: Path) -> int:
    """Return the number of an attempt in a file, 0 where there is none."""
    try:
        number = int(path.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return 0
    return number if number <= _MAX_ATTEMPT else 0


def make_run_id(now: datetime) -> str:
    """Return a new id: the UTC time to a 4096th of a second and three random hexadecimal digits; ids sort by time."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{now.microsecond * 4096 // 10**6:03x}{secrets.randbelow(4096):03x}"


def id_end(run_id: str) -> str:
    """Return the last six digits of a run id, short and nearly always unique."""
    return run_id.rpartition("-")[2]


def create_run_folder(
    runs_root: Path, run_id: str, name: str, spec: bytes, parent: tuple[str | None, int | None] = (None, None)
) -> Path:
    """Write the folder of a new run under a hidden name, then rename it, and return its path.

    Args:
        runs_root: The folder of all runs.
        run_id: The folder's name.
        name: What people call the run.
        spec: The content of `spec.json`.
        parent: The id of the run that it continues, and the step from which on.

    Raises:
        FileExistsError: There is a run of this id.
        OSError: It could not be written; nothing of it is left.
    """
    info = {
        "run_id": run_id,
        "name": name,
        "created_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "parent_run_id": parent[0],
        "branched_from_step": parent[1],
        "spec_crc": crc32(spec),
    }
    root = Path(runs_root)
    unfinished, path = root / f".creating-{run_id}", root / run_id
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        for folder in (*reversed(root.parents), root):  # `parents=True` would leave the mode of parents to the umask
            folder.mkdir(exist_ok=True, mode=0o700)
        unfinished.mkdir(mode=0o700)
        for name_of_part in ("attempts", "buffer", "checkpoints", "control"):
            (unfinished / name_of_part).mkdir(mode=0o700)
        write_whole(unfinished / "spec.json", spec)
        write_whole(unfinished / "run.json", seal(json.dumps(info, indent=2).encode()) + b"\n")
        unfinished.rename(path)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if path.exists():
            raise FileExistsError(f"{path}: exists already.") from None
        raise
    sync(root)
    return path
