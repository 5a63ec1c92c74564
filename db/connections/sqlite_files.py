"""SQLite's file: local disks only, short waits for the lock, a log that stays small, and making way for a new one."""

import re
import shutil
import sqlite3
import time
from pathlib import Path

MOUNTS = Path("/proc/self/mountinfo")
NETWORK_TYPES = frozenset(
    {
        "afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2",
        "orangefs", "panfs", "smb3", "smbfs", "wekafs",
    }
)  # fmt: skip
NETWORK_PROGRAMS = frozenset(
    {
        "blobfuse", "blobfuse2", "ceph", "ceph-fuse", "gcsfuse", "glusterfs", "juicefs", "lizardfs", "mfs", "mount-s3",
        "rclone", "s3fs", "sshfs",
    }
)  # fmt: skip
"""Programs that mount as `fuse.NAME`."""
_OCTAL = re.compile(r"\\([0-7]{3})")
BUSY_SECONDS = 5.0
MAX_LOG_BYTES = 16 * 2**20
"""A longer write-ahead log is emptied. SQLite's automatic checkpoints never succeed while readers follow closely."""
_POLL_SECONDS = 0.005
_FASTER_AFTER_SECONDS = 0.1
"""After so long a wait polls twice as often as at first."""
_CHECKPOINT_SECONDS = 1.0


def is_network_type(name: str) -> bool:
    """Return whether a file system of this type may be mounted by several machines at once."""
    kind, _, program = name.partition(".")
    return kind in NETWORK_TYPES or (kind == "fuse" and program in NETWORK_PROGRAMS)


def type_of(path: Path, mounts: str) -> str:
    """Return the type of the file system that `path` is on, or would be on, by a mountinfo text; "" if it has none."""
    resolved = path.resolve()
    most_parts, kind = -1, ""
    for line in mounts.splitlines():
        head, _, tail = line.partition(" - ")
        words = head.split(" ")
        if len(words) < 5 or not tail:
            continue
        point = Path(_OCTAL.sub(lambda code: chr(int(code[1], 8)), words[4]))
        # A later mount on the same point hides the earlier one.
        if resolved.is_relative_to(point) and len(point.parts) >= most_parts:
            most_parts, kind = len(point.parts), tail.split(" ")[0]
    return kind


def network_type_of(path: Path) -> str:
    """Return the type of the network file system that `path` is on; "" on a local one, or if it is not known."""
    try:
        mounts = MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""
    kind = type_of(path, mounts)
    return kind if is_network_type(kind) else ""


def refusal(path: Path) -> str:
    """Return one sentence on why `path` is not allowed for a database, empty if it is allowed."""
    kind = network_type_of(path)
    if not kind:
        return ""
    return (
        f"{path}: lies on a network file system ({kind}), where SQLite damages files; name a PostgreSQL database or a "
        "file on a local disk with EXGRPO_DATABASE_URL (sqlite:////FOLDER/workbench.db)."
    )


def set_aside(path: Path) -> None:
    """Rename what cannot be used as a database, in place of an earlier one, with its log, which would damage a new."""
    aside = path.with_name(f"{path.stem}.unusable.db")
    for ending in ("-wal", "-shm"):
        log = path.with_name(path.name + ending)
        if log.exists():
            log.replace(aside.with_name(aside.name + ending))
        else:
            aside.with_name(aside.name + ending).unlink(missing_ok=True)
    if path.exists():
        if aside.is_dir():
            shutil.rmtree(aside)
        elif path.is_dir():
            aside.unlink(missing_ok=True)
        path.replace(aside)


def execute_unlocked(connection: sqlite3.Connection, statement: str) -> None:
    """Execute a statement that needs a lock of the whole database, as soon as no other program has it.

    SQLite waits in steps of up to 100 ms, in which writers that do not wait win again and again, and it does not wait
    at all where several programs change a new database's journal mode. Here the poll gets faster with the time waited.

    Raises:
        OperationalError: Others held the lock for `BUSY_SECONDS`.
    """
    began_at = time.monotonic()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute(statement)
            except sqlite3.OperationalError as error:
                waited = time.monotonic() - began_at
                if "locked" not in str(error) or waited >= BUSY_SECONDS:
                    raise
                time.sleep(_POLL_SECONDS / (1.0 + waited / _FASTER_AFTER_SECONDS))
            else:
                return
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")


def is_log_long(path: Path) -> bool:
    """Return whether the write-ahead log of the database at `path` is due to be emptied."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size > MAX_LOG_BYTES
    except OSError:
        return False


def shorten_log(connection: sqlite3.Connection) -> None:
    """Empty the write-ahead log; wait a moment for readers, and leave it to the next write if they stay."""
    connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_SECONDS * 1000:.0f}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
