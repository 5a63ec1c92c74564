import sqlite3
import threading
from contextlib import closing

from db.connections.sqlite_copy import copy_sqlite

NUM_BYTES = 64 * 2**20


def test_a_large_database_is_copied_while_another_program_commits_again_and_again(tmp_path):
    source, target, ends = tmp_path / "source.db", tmp_path / "copy.db", threading.Event()
    with closing(sqlite3.connect(source, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE filling (content BLOB)")
        connection.execute("INSERT INTO filling VALUES (zeroblob(?))", [NUM_BYTES])
        connection.execute("CREATE TABLE counts (number INTEGER)")

    def commit() -> None:
        with closing(sqlite3.connect(source, isolation_level=None)) as own:
            own.execute("PRAGMA synchronous = OFF")
            while not ends.is_set():
                own.execute("INSERT INTO counts VALUES (1)")

    writer = threading.Thread(target=commit)
    copier = threading.Thread(target=copy_sqlite, args=(source, target), daemon=True)
    writer.start()
    copier.start()
    copier.join(20)
    is_ended = not copier.is_alive()
    ends.set()
    writer.join()
    copier.join()
    assert is_ended, "the copy went on for as long as the other program did"
    with closing(sqlite3.connect(target)) as copy:
        assert copy.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert copy.execute("SELECT length(content) FROM filling").fetchone() == (NUM_BYTES,)
