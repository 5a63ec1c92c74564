"""What SQLite needs where several programs write to one file: short waits for a turn, and a log that stays small."""

import sqlite3
import time
from pathlib import Path

from db.connections.file_systems import network_type_of

BUSY_SECONDS = 5.0
MAX_LOG_BYTES = 16 * 2**20
"""A write-ahead log that is longer is emptied. SQLite's own checkpoints never are where readers follow closely."""
_TURN_SECONDS = 0.005
_PATIENT_SECONDS = 0.1
"""Who has waited so long asks twice as often as at first."""
_CHECKPOINT_SECONDS = 1.0


def refusal(path: Path) -> str:
    """Return in one sentence why no database may lie at `path`, nothing where one may."""
    kind = network_type_of(path)
    if not kind:
        return ""
    return (
        f"{path}: lies on a network file system ({kind}), where SQLite damages files; name a PostgreSQL database or a "
        "file on a local disk with EXGRPO_DATABASE_URL (sqlite:////FOLDER/workbench.db)."
    )


def begin_writing(connection: sqlite3.Connection) -> None:
    """Begin a transaction that writes, as soon as no other program does.

    SQLite waits in steps of up to 100 ms, in which writers that do not wait get in again and again. Here who has waited
    longer asks more often.

    Raises:
        OperationalError: Others wrote for `BUSY_SECONDS`.
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
                time.sleep(_TURN_SECONDS / (1.0 + waited / _PATIENT_SECONDS))
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
    """Empty the write-ahead log; wait a moment for readers, and leave it to the next write if that was in vain."""
    connection.execute(f"PRAGMA busy_timeout = {_CHECKPOINT_SECONDS * 1000:.0f}")
    try:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000:.0f}")
