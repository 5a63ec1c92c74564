import contextlib
import socket
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import IntegrityError

from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import UNAVAILABLE_ERRORS, DatabaseError
from exgrpo.db.tables import models

pytestmark = pytest.mark.slow


def position(source, value="0"):
    return {"source": source, "position": value}


def count_positions(database):
    with database.read() as connection:
        return len(connection.execute(select(models.ingest_positions)).all())


def run_at_once(functions):
    with ThreadPoolExecutor(len(functions)) as pool:
        for done in [pool.submit(function) for function in functions]:
            done.result()


def test_postgresql_compiles_no_query(database):
    with database.read() as connection:
        assert database.is_sqlite or connection.exec_driver_sql("SHOW jit").scalar() == "off"


def test_work_that_fails_leaves_nothing(database):
    def work(connection):
        connection.execute(insert(models.ingest_positions), [position("one")])
        raise RuntimeError("no")

    before = count_positions(database)
    with pytest.raises(RuntimeError):
        database.write(work)
    assert count_positions(database) == before


def test_an_error_that_no_waiting_mends_is_raised_at_once(database):
    calls = []

    def work(connection):
        calls.append(connection)
        connection.execute(insert(models.ingest_positions), [position("one"), position("one")])

    with pytest.raises(IntegrityError):
        database.write(work)
    assert len(calls) == 1


def test_writers_at_once_lose_no_update(database):
    database.write(lambda connection: connection.execute(insert(models.ingest_positions), [position("sum")]))
    table = models.ingest_positions

    def add_one(connection):
        row = connection.execute(select(table.c.position).where(table.c.source == "sum").with_for_update()).one()
        connection.execute(table.update().values(position=str(int(row.position) + 1)))

    run_at_once([lambda: [database.write(add_one) for _ in range(25)]] * 4)
    with database.read() as connection:
        assert connection.scalar(select(table.c.position)) == "100"


def test_the_default_is_a_sqlite_file_of_the_workbench_with_a_write_ahead_log(tmp_path):
    database = open_database(None, tmp_path)
    with database.read() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
    database.close()
    assert (tmp_path / "workbench" / "workbench.db").is_file()


def test_a_writer_that_never_lets_go_ends_in_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr("exgrpo.db.connections.sqlite_files.BUSY_SECONDS", 0.01)
    database = open_database(None, tmp_path)
    other = sqlite3.connect(tmp_path / "workbench" / "workbench.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(DatabaseError):
        database.write(lambda connection: connection.execute(insert(models.ingest_positions), [position("one")]))
    other.close()
    database.write(lambda connection: connection.execute(insert(models.ingest_positions), [position("one")]))
    database.close()


def test_many_programs_that_open_a_new_database_at_once_find_one_schema(database_url, tmp_path):
    run_at_once([lambda: open_database(database_url, tmp_path).close()] * 6)


@pytest.mark.parametrize(
    "url",
    [
        "nonsense", "mysql://host/name", "sqlite://", "postgresql://me@host:port/name", "postgresql://me@host:99999/name",
        "postgresql://me@host/name?port=x", "postgresql://me@host/name?odd=1", "sqlite:///a.db?odd=1",
        "postgresql://me@[::1/name",
    ],
)  # fmt: skip
def test_a_url_of_no_database_we_know_is_refused(url, tmp_path):
    with pytest.raises(DatabaseError):
        open_database(url, tmp_path)


def test_a_server_that_takes_a_connection_and_says_nothing_is_given_up(tmp_path):
    began_at = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as frozen, pytest.raises(DatabaseError):
        open_database(f"postgresql://me@127.0.0.1:{frozen.getsockname()[1]}/nowhere", tmp_path)
    assert time.monotonic() - began_at < 30


def test_the_write_ahead_log_is_emptied_although_some_reader_is_always_there(tmp_path, monkeypatch):
    monkeypatch.setattr("exgrpo.db.connections.sqlite_files.MAX_LOG_BYTES", 2 * 2**20)
    database = open_database(None, tmp_path)
    is_over = threading.Event()

    def read_on():
        while not is_over.is_set():
            with database.read() as connection:
                connection.execute(select(models.ingest_positions.c.source)).all()
                time.sleep(0.03)

    readers = [threading.Thread(target=read_on) for _ in range(3)]
    for reader in readers:
        reader.start()
    sizes = []
    for number in range(60):
        row = position(str(number), "x" * 2**18)
        database.write(lambda connection, row=row: connection.execute(insert(models.ingest_positions), [row]))
        sizes.append((tmp_path / "workbench" / "workbench.db-wal").stat().st_size)
    is_over.set()
    for reader in readers:
        reader.join()
    database.close()
    assert max(sizes) < 4 * 2**20
    assert min(sizes[10:]) == 0


def test_a_transaction_that_cannot_begin_is_an_error_that_readers_of_a_database_know(tmp_path):
    database = open_database(None, tmp_path)
    path = tmp_path / "workbench" / "workbench.db"
    with contextlib.closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE other (number INTEGER)")
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        with path.open("r+b") as file:
            file.write(b"x" * 4096)
    with pytest.raises(UNAVAILABLE_ERRORS):
        database.write(lambda connection: connection.execute(insert(models.ingest_positions), [position("one")]))
    database.close()
