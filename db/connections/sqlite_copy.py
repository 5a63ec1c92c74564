"""A copy of a SQLite database at one moment, while other programs continue to write to it."""

import sqlite3
from contextlib import closing
from pathlib import Path

from db.connections.session import DatabaseError


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy the database at `source` to the new file `target`, whole and consistent (SQLite's online backup).

    It is one step, since SQLite restarts at every commit between steps. It blocks nobody: with a write-ahead log,
    readers do not block writers.

    Raises:
        DatabaseError: The database cannot be read, or the copy cannot be written.
    """
    address = f"file:{source.resolve().as_posix().replace('%', '%25').replace('?', '%3f').replace('#', '%23')}?mode=ro"
    try:
        with closing(sqlite3.connect(address, uri=True)) as original, closing(sqlite3.connect(target)) as copy:
            original.backup(copy)
    except sqlite3.Error as error:
        raise DatabaseError(f"{source}: cannot be copied ({error}).") from None
