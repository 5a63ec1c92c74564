"""SQLite with several programs that write to one file: short waits for the lock, and a log that stays small."""

import sqlite3
import time
from pathlib import Path

from db.connections.file_systems import network_type_of

BUSY_SECONDS = 5.0
MAX_LOG_BYTES = 16 * 2**20
"""A longer write-ahead log is emptied. SQLite's automatic checkpoints never succeed while readers follow closely."""
_POLL_SECONDS = 0.005
_FASTER_AFTER_SECONDS = 0.1
"""After so long a wait polls twice as often as at first."""
_CHECKPOINT_SECONDS = 1.0


def refusal(path: Path) -> str:
    """Return one sentence on why `path` is not allowed for a database, empty if it is allowed."""
    kind = network_type_of(path)
    if not kind:
        return ""
    return (
        f"{path}: lies on a network file system ({kind}), where SQLite damages files; name a PostgreSQL database or a "
        "file on a local disk with EXGRPO_DATABASE_URL (sqlite:////FOLDER/workbench.db)."
    )


def begin_writing(connection: sqlite3.Connection) -> None:
    """Begin a transaction that writes, as soon as no other program writes.

    SQLite waits in steps of up to 100 ms, in which writers that do not wait win again and again. Here the poll gets
    faster with the time waited.

    Raises:
        OperationalError: Others held the lock for `BUSY_SECONDS`.
    """
    began_at = time.monotonic()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
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
