"""The database dropped: everything in it comes back from files, however often the rebuilding is killed."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from exgrpo.db.connections.opening import ForeignDatabaseError, open_database
from exgrpo.db.connections.session import DamagedDatabaseError, DatabaseError
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.backup import back_up, restore
from exgrpo.jobs.execution.supervisor import indexing
from exgrpo.jobs.execution.supervisor.indexing import Indexer, describe_database, ingest_all, rebuild_index
from exgrpo.jobs.runs.directory import list_run_directories
from exgrpo.jobs.runs.state import SingleInstance, SupervisorRunningError
from tests.faults import used_workbench
from tests.jobs.cli.invoked import printed_json
from tests.postgres import running_server

pytestmark = pytest.mark.fault_row(12)

NUM_RUNS = {False: 8, True: 60}
NUM_KILLS = {False: 2, True: 20}


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database_url(request):
    if request.param == "sqlite":
        yield None
        return
    with running_server() as url:
        yield url


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory, is_long):
    runs_root = tmp_path_factory.mktemp("used") / "runs"
    used_workbench.make(runs_root, NUM_RUNS[is_long])
    ingest_all(runs_root, None)
    return runs_root


@pytest.fixture
def filled(runs_root, tmp_path):
    """A copy of the used workbench whose SQLite database is up to date."""
    copy = tmp_path / "runs"
    shutil.copytree(runs_root, copy)
    ingest_all(copy, None)
    return copy


def opened(runs_root, database_url):
    return closing(open_database(database_url, runs_root))


def content(runs_root, database_url):
    with opened(runs_root, database_url) as database:
        return used_workbench.tables(database)


def drop(runs_root, database_url):
    if database_url is None:
        for file in (runs_root / "workbench").glob("workbench.db*"):
            file.unlink()
        return
    with opened(runs_root, database_url) as database:
        database.write(lambda connection: connection.exec_driver_sql("DROP SCHEMA public CASCADE"))
        database.write(lambda connection: connection.exec_driver_sql("CREATE SCHEMA public"))


def test_rebuilt_database_answers_as_the_one_that_was_dropped(filled, database_url, figure):
    ingest_all(filled, database_url)
    rows = content(filled, database_url)
    # Not one thing that users can say is missing, so that what is compared is there to be lost.
    users_say = "tags notes saved_cases verdict_overrides trajectory_marks judge_votes benchmark_scores"
    assert all(rows[table] for table in users_say.split())
    drop(filled, database_url)
    command = [sys.executable, "-m", "exgrpo.jobs.cli", "db", "rebuild", "--runs-root", str(filled)]
    words = [] if database_url is None else ["--database-url", database_url]
    done = subprocess.run([*command, *words], check=True, capture_output=True, text=True, timeout=300)
    assert done.stdout == f"Built again from {len(rows['runs'])} runs.\n"
    assert content(filled, database_url) == rows
    kind = "SQLite" if database_url is None else "PostgreSQL"
    figure(f"rows rebuilt ({kind})", f"{sum(map(len, rows.values())):,} of {len(rows)} tables, all the same")


@pytest.mark.slow
def test_rebuild_that_is_killed_anywhere_is_finished_by_the_next_supervisor(filled, database_url, is_long, figure):
    expected = content(filled, None)
    rng = random.Random(12)
    began_at = time.monotonic()
    rebuild_index(filled, database_url)
    seconds = time.monotonic() - began_at
    for _ in range(NUM_KILLS[is_long]):
        kill_a_rebuild_after(filled, database_url, rng.uniform(0.0, seconds))
        ingest_all(filled, database_url)
        assert content(filled, database_url) == expected
    kind = "SQLite" if database_url is None else "PostgreSQL"
    figure(f"rebuilds killed ({kind})", f"{NUM_KILLS[is_long]}, finished by the next start with the same rows")


def kill_a_rebuild_after(runs_root, database_url, seconds):
    program = "import sys; from tests.faults import test_database_dropped as this; this.say_and_rebuild()"
    environment = os.environ | {"RUNS": str(runs_root), "URL": database_url or ""}
    with subprocess.Popen([sys.executable, "-c", program], env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begin\n"
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)


def say_and_rebuild():
    sys.stdout.write("begin\n")
    sys.stdout.flush()
    rebuild_index(Path(os.environ["RUNS"]), os.environ["URL"] or None)


def test_a_rebuild_beside_a_living_supervisor_is_refused_and_changes_nothing(filled):
    expected = content(filled, None)
    instance = SingleInstance(filled)
    with pytest.raises(SupervisorRunningError, match="end it first"):
        rebuild_index(filled, None)
    instance.release()
    assert content(filled, None) == expected


def test_folder_that_comes_back_brings_its_words_with_it(filled, tmp_path):
    expected = content(filled, None)
    shutil.move(filled / "trained", tmp_path / "aside")
    rebuild_index(filled, None)
    run_actions.tag(filled, "resumed", "later")
    ingest_all(filled, None)
    run_actions.tag(filled, "resumed", "later", is_set=False)
    shutil.move(tmp_path / "aside", filled / "trained")
    ingest_all(filled, None)
    found = content(filled, None)
    assert found | {"ingest_positions": []} == expected | {"ingest_positions": []}


def _write_noise(path, content):
    middle = len(content) // 3
    noise = random.Random(3).randbytes(len(content) // 2)
    path.write_bytes(content[:middle] + noise + content[middle + len(noise) :])


def _make_folder(path, _):
    path.mkdir()
    (path / "a file").touch()


def _write_of_another_program(path, _):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE runs (name TEXT)")


DAMAGES: dict[str, Callable[[Path, bytes], object]] = {
    "missing": lambda *_: None,
    "missing, but for its log": lambda path, content: path.with_name("workbench.db-wal").write_bytes(content[:9000]),
    "empty": lambda path, _: path.touch(),
    "end cut": lambda path, content: path.write_bytes(content[: len(content) * 2 // 3]),
    "noise in the middle": _write_noise,
    "text": lambda path, _: path.write_text("no database" * 1000),
    "folder": _make_folder,
    "another program's": _write_of_another_program,
}
WITHOUT_ERROR = {"missing", "missing, but for its log", "empty"}


def damage(runs_root, kind):
    path = runs_root / "workbench" / "workbench.db"
    content = path.read_bytes()
    drop(runs_root, None)
    DAMAGES[kind](path, content)


@pytest.mark.slow
@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_file_stands_between_nobody_and_the_runs(filled, kind, tmp_path, figure):
    expected = content(filled, None)
    num_runs = len(list_run_directories(filled))
    damage(filled, kind)
    if kind not in WITHOUT_ERROR:
        error = ForeignDatabaseError if kind == "another program's" else DamagedDatabaseError
        with pytest.raises(error, match="exgrpo db rebuild"), opened(filled, None) as database:
            used_workbench.tables(database)
        assert not describe_database(None, filled)[0]
        beside_a_supervisor = SingleInstance(filled)
        assert len(printed_json(filled, "runs", "--all")) == num_runs
        beside_a_supervisor.release()
    assert back_up(filled, tmp_path / "runs.tar") == {}
    restore(tmp_path / "runs.tar", tmp_path / "restored")
    assert len(printed_json(tmp_path / "restored", "runs", "--all")) == num_runs
    assert rebuild_index(filled, None) == num_runs
    assert content(filled, None) == expected
    damage(filled, kind)
    assert len(printed_json(filled, "runs", "--all")) == num_runs
    assert content(filled, None) == expected
    figure("damaged SQLite files", f"{len(DAMAGES)} kinds, built again by a rebuild and by the next supervisor")


@pytest.mark.parametrize("kind", ["missing", "text", "folder"])
def test_supervisor_builds_a_file_again_that_is_damaged_while_it_runs(filled, kind):
    expected = content(filled, None)
    index = Indexer(None, filled)
    index.poll()
    damage(filled, kind)
    index.poll()
    while index.is_behind:
        index.poll()
    index.close()
    assert content(filled, None) == expected


def test_supervisor_fills_a_database_again_that_was_dropped_while_it_runs(filled, database_url, monkeypatch):
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.0)
    expected = content(filled, None)
    with closing(Indexer(database_url, filled)) as index:
        for _ in range(2):
            index.poll()
            while index.is_behind or not index.is_reachable:
                index.poll()
            assert content(filled, database_url) == expected
            drop(filled, database_url)


def test_file_that_another_program_locks_delays_nothing_but_its_own_writing(filled, tmp_path, monkeypatch):
    for module in ("sqlite_files", "session"):
        monkeypatch.setattr(f"exgrpo.db.connections.{module}.BUSY_SECONDS", 0.01)
    monkeypatch.setattr("exgrpo.db.connections.session.MAX_TRIES", 2)
    expected = content(filled, None)
    with closing(sqlite3.connect(filled / "workbench" / "workbench.db", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        assert not describe_database(None, filled)[0]
        assert len(printed_json(filled, "runs", "--all")) == len(expected["runs"])
        assert back_up(filled, tmp_path / "runs.tar") == {}
        with pytest.raises(DatabaseError):
            rebuild_index(filled, None)
    assert content(filled, None) == expected
