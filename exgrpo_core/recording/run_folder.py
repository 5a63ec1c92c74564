"""The folder of a new run: it appears whole, with its specification and its description."""

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

RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,79}")
_ATTEMPT = re.compile(r"[0-9]{4,9}")


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


def make_run_id(now: datetime) -> str:
    """Return a new id: the UTC time to the second and six random hexadecimal digits."""
    return f"{now.astimezone(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


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
    unfinished, path = Path(runs_root) / f".creating-{run_id}", Path(runs_root) / run_id
    shutil.rmtree(unfinished, ignore_errors=True)
    try:
        unfinished.mkdir(parents=True, mode=0o700)
        for folder in ("attempts", "buffer", "checkpoints", "control"):
            (unfinished / folder).mkdir(parents=True)
        write_whole(unfinished / "spec.json", spec)
        write_whole(unfinished / "run.json", seal(json.dumps(info, indent=2).encode()) + b"\n")
        unfinished.rename(path)
    except OSError:
        shutil.rmtree(unfinished, ignore_errors=True)
        if path.exists():
            raise FileExistsError(f"{path}: exists already.") from None
        raise
    sync(Path(runs_root))
    return path
