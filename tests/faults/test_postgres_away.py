"""PostgreSQL stopped, frozen, and killed after COMMIT was sent: nothing is lost, training never notices."""

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import streamlit as st
from streamlit.testing.v1 import AppTest

import app
from app import settings
from db.connections.opening import open_database
from jobs.actions import run_actions
from jobs.actions.queueing import queue_job
from jobs.runs.control import ENDED
from jobs.runs.directory import RunDirectory
from jobs.runs.state import read_state
from jobs.supervisor import indexing
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.loop import Supervisor, SupervisorSettings
from jobs.supervisor.open_index import rebuild_index
from tests.faults import used_workbench
from tests.faults.commit_cutter import CommitCutter
from tests.jobs.supervisor.toy_bench import toy_spec, wait_until
from tests.postgres import Server, controlled_server

pytestmark = [pytest.mark.fault_row(5), pytest.mark.timeout(1500)]

OUTAGES = {False: (2.0,), True: (5.0, 60.0, 120.0)}
NUM_MORE_RUNS = {False: 3, True: 60}
NUM_CUTS = {False: 16, True: 400}
NUM_KILLS = {False: 2, True: 20}
STALE_SECONDS = {False: 30.0, True: 5.0}
"""The short form runs beside other tests, on a machine that may be busy."""
BACK_SECONDS = 30.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with controlled_server() as server:
        yield server


@pytest.fixture
def empty(server: Server) -> Server:
    """The server with an empty database."""
    database = open_database(server.url, Path(), upgrades=False)
    for statement in ("DROP SCHEMA public CASCADE", "CREATE SCHEMA public"):
        database.write(lambda connection, statement=statement: connection.exec_driver_sql(statement))
    database.close()
    return server


def rows(runs_root: Path, url: str | None) -> dict[str, list[tuple[Any, ...]]]:
    database = open_database(url, runs_root)
    tables_now = used_workbench.tables(database)
    database.close()
    return tables_now


@pytest.fixture
def run(tmp_path: Path, empty: Server) -> Iterator[RunDirectory]:
    """A run under way, with a supervisor that writes to PostgreSQL."""
    run_id = queue_job(tmp_path, toy_spec(100_000))
    command = [sys.executable, "-m", "tests.jobs.supervisor.toy_supervisor", "--runs-root", str(tmp_path)]
    environment = os.environ | {"EXGRPO_DATABASE_URL": empty.url}
    supervisor = subprocess.Popen(
        [*command, "--until-idle"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    run = RunDirectory.open(tmp_path, run_id)
    wait_until(lambda: step_of(run) > 5, "the run's steps")
    yield run
    st.cache_resource.clear()
    if not read_state(run).is_ended:
        run_actions.stop(tmp_path, run_id)
    supervisor.terminate()
    supervisor.wait(timeout=120)


def step_of(run: RunDirectory) -> int:
    heartbeat = read_state(run).heartbeat
    return heartbeat.step if heartbeat else 0


def open_run_page(run: RunDirectory, url: str) -> AppTest:
    st.cache_data.clear()
    st.cache_resource.clear()
    settings.configure(settings.AppSettings(run.path.parent, url))
    page = AppTest.from_file(str(Path(app.__file__).parent / "main.py"), default_timeout=60)
    page.query_params["run"] = run.run_id
    page.switch_page("app_pages/run.py").run()
    return page


def is_away(page: AppTest) -> bool:
    page.run()
    assert [error.message for error in page.exception if "UnavailableError" not in str(error.proto)] == []
    return bool(page.exception)


def seconds_until(condition: Callable[[], bool], most: float) -> float:
    began_at = time.monotonic()
    while not condition():
        assert time.monotonic() - began_at < most, "it never came"
        time.sleep(0.2)
    return time.monotonic() - began_at


@pytest.mark.parametrize("fault", ["stopped", "frozen"])
def test_database_that_goes_away_is_told_of_and_nothing_is_lost(run, server, fault, is_long, figure):
    page = open_run_page(run, server.url)
    assert not is_away(page)
    for outage in OUTAGES[is_long]:
        (go, come) = (server.stop, server.start) if fault == "stopped" else (freeze(server), thaw(server))
        step = step_of(run)
        go()
        try:
            began_at = time.monotonic()
            stale = seconds_until(lambda: is_away(page), STALE_SECONDS[is_long])
            time.sleep(max(0.0, outage - (time.monotonic() - began_at)))
            steps_a_second = (step_of(run) - step) / (time.monotonic() - began_at)
        finally:
            come()
        back = seconds_until(lambda: not is_away(page), BACK_SECONDS)
        name = f"{fault} for {outage:.0f} s"
        figure(name, f"stale after {stale:.1f} s, back after {back:.1f} s, {steps_a_second:.0f} steps/s during it")
        assert steps_a_second > 0.0
    run_actions.stop(run.path.parent, run.run_id)
    wait_until(lambda: read_state(run).status in ENDED, "the run's end")
    wait_until(lambda: shown_status(run, server) == "stopped", "the end in the database")
    journal = run.path.parent / "workbench" / "journal.jsonl"
    wait_until(
        lambda: ("journal", str(journal.stat().st_size)) in rows(run.path.parent, server.url)["ingest_positions"],
        "the journal in the database",
    )
    kept = rows(run.path.parent, server.url)
    rebuild_when_alone(run.path.parent)
    assert kept == rows(run.path.parent, None)
    figure(f"steps recorded and shown ({fault})", f"{len(kept['steps']):,}, each once")


def freeze(server: Server) -> Callable[[], None]:
    return lambda: server.signal(signal.SIGSTOP)


def thaw(server: Server) -> Callable[[], None]:
    return lambda: server.signal(signal.SIGCONT)


def shown_status(run: RunDirectory, server: Server) -> str:
    from db.queries.runs import get_run

    database = open_database(server.url, run.path.parent)
    row = get_run(database, run.run_id)
    database.close()
    return row.status if row else ""


def rebuild_when_alone(runs_root: Path) -> None:
    from jobs.supervisor.instance import read_supervisor

    wait_until(lambda: read_supervisor(runs_root) is None, "the supervisor's end")
    rebuild_index(runs_root, None)


@pytest.fixture
def socket_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="cut-") as folder:
        yield Path(folder)


def ingest_through(runs_root: Path, url: str, disturb: Callable[[int], None]) -> None:
    """Read as a supervisor does until everything is ingested, with `disturb` called before each poll."""
    index = DatabaseIndex(url, runs_root)
    supervisor = Supervisor(runs_root, index, settings=SupervisorSettings(max_running=0))
    look = 0
    supervisor.poll()
    while index.is_behind or not index.is_reachable:
        disturb(look)
        supervisor.poll()
        look += 1
    supervisor.poll()
    supervisor.close()


def test_answers_to_commit_that_are_lost_lose_and_double_nothing(
    tmp_path, empty, socket_folder, is_long, monkeypatch, figure
):
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.0)
    runs_root = tmp_path / "runs"
    used_workbench.make(runs_root, NUM_MORE_RUNS[is_long])
    cutter = CommitCutter(socket_folder, empty.folder, 0.15, random.Random(5))
    url = f"postgresql://tester@/postgres?host={socket_folder}"
    open_database(url, runs_root).close()
    cutter.num_left = NUM_CUTS[is_long]
    ingest_through(runs_root, url, lambda _: None)
    cutter.close()
    rebuild_index(runs_root, None)
    assert rows(runs_root, empty.url) == rows(runs_root, None)
    assert cutter.num_unanswered > 3
    assert cutter.num_unheard > 3
    done = f"{cutter.num_unanswered} answers lost, {cutter.num_unheard} never heard, of {cutter.num_commits}"
    figure("COMMIT cut on the way", f"{done}; the same rows")


def test_server_killed_between_commits_loses_and_doubles_nothing(tmp_path, empty, is_long, monkeypatch, figure):
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(indexing, "REFRESH_SECONDS", 0.05)
    runs_root = tmp_path / "runs"
    used_workbench.make(runs_root, NUM_MORE_RUNS[is_long])
    kills_left = [NUM_KILLS[is_long]]

    def kill(look: int) -> None:
        if look % 2 == 0 and kills_left[0]:
            kills_left[0] -= 1
            empty.stop()
            empty.start()

    ingest_through(runs_root, empty.url, kill)
    rebuild_index(runs_root, None)
    assert rows(runs_root, empty.url) == rows(runs_root, None)
    figure("server killed while it was written to", f"{NUM_KILLS[is_long] - kills_left[0]} times, the same rows")
