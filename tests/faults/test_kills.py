"""Row 1: kill -9 of trainer, supervisor and web server at random points, inside saves among them."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from exgrpo.db import SQLITE_FILE
from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.runs import list_attempts
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.checkpoints import PREFIX, find_fault, list_checkpoints
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.runs.state import read_state
from exgrpo_core.recording.run_status import RunStatus
from tests.app import web_server
from tests.faults import recorded
from tests.faults.small_training import small_spec, train
from tests.jobs.execution.supervisor.toy_bench import processes_of, wait_until

pytestmark = [pytest.mark.fault_row(1), pytest.mark.slow]

REPOSITORY = Path(__file__).resolve().parents[2]
NUM_STEPS, CHECKPOINT_INTERVAL = 200, 5
LONG_COUNTS = {"trainer inside a save": 50, "trainer": 75, "supervisor": 50, "web server": 25}
SHORT_COUNTS = {"trainer inside a save": 2, "trainer": 1, "supervisor": 1, "web server": 1}


class KilledWorkbench:
    """The three processes of a workbench on one runs root, and its runs one after the other."""

    def __init__(self, runs_root, chance):
        self.runs_root = runs_root
        self.chance = chance
        self.log = (runs_root.parent / "supervisor.log").open("ab")
        self.supervisor = self._start_supervisor()
        self.server = web_server.start(runs_root)
        self.runs: list[RunDirectory] = []
        self.whole_before: dict[tuple[str, int], int] = {}
        self.begin_run()

    def begin_run(self):
        spec = small_spec(NUM_STEPS, CHECKPOINT_INTERVAL)
        run_id = queue_job(self.runs_root, spec)
        self.runs.append(RunDirectory.open(self.runs_root, run_id))

    def state(self):
        return read_state(self.runs[-1])

    def wait_for(self, *statuses):
        wait_until(lambda: self.state().status in statuses, f"{statuses}, it is {self.state()}")
        return self.state()

    def running(self):
        """Return the state of a run that trains, of a new one if the last has succeeded."""
        if self.wait_for(RunStatus.RUNNING, RunStatus.FINISHED).status is RunStatus.FINISHED:
            self.begin_run()
            return self.wait_for(RunStatus.RUNNING)
        return self.state()

    def kill(self, victim):
        """Kill a process at a random moment and see it replaced; False where the moment was missed."""
        if victim == "supervisor":
            self.running()
            time.sleep(self.chance.uniform(0.0, 0.5))
            self.supervisor.kill()
            self.supervisor.wait()
            self.supervisor = self._start_supervisor()
            return True
        if victim == "web server":
            time.sleep(self.chance.uniform(0.0, 0.5))
            self.server.process.kill()
            self.server.stop()
            self.server = web_server.start(self.runs_root)
            assert "set-cookie" in httpx2.get(self.server.link, timeout=60).headers
            return True
        return self._kill_trainer(is_inside_save=victim != "trainer")

    def _kill_trainer(self, is_inside_save):
        state, run = self.running(), self.runs[-1]
        if is_inside_save:
            wait_until(lambda: bool(unfinished_saves(run)) or self.state().is_ended, "a save")
            time.sleep(self.chance.uniform(0.0, 0.04))
        else:
            time.sleep(self.chance.uniform(0.0, 1.0))
        whole = [path for path in list_checkpoints(run.checkpoints_path) if find_fault(path) is None]
        os.kill(state.heartbeat.worker.pid, signal.SIGKILL)
        is_inside = bool(unfinished_saves(run))
        if self.wait_for(RunStatus.LOST, RunStatus.FINISHED).status is RunStatus.FINISHED:
            return False
        assert [find_fault(path) for path in list_checkpoints(run.checkpoints_path)[:2]] in ([], [None], [None, None])
        step = int(whole[0].name.removeprefix(PREFIX)) if whole else 0
        self.whole_before[(run.run_id, state.attempt + 1)] = step
        run_actions.resume(self.runs_root, run.run_id)
        return is_inside or not is_inside_save

    def close(self):
        self.server.stop()
        self.supervisor.terminate()
        self.supervisor.wait()
        self.log.close()

    def _start_supervisor(self):
        command = [sys.executable, "-m", "tests.faults.small_supervisor", "--runs-root", str(self.runs_root)]
        return subprocess.Popen(command, cwd=REPOSITORY, stdout=self.log, stderr=self.log, start_new_session=True)


def unfinished_saves(run):
    return [*run.checkpoints_path.glob(f".{PREFIX}*")]


@pytest.fixture
def workbench(tmp_path):
    (tmp_path / "runs").mkdir()
    workbench = KilledWorkbench(tmp_path / "runs", random.Random(1))
    yield workbench
    workbench.close()
    for pid in processes_of(workbench.runs_root):
        os.kill(pid, signal.SIGKILL)


def test_whatever_is_killed_nothing_is_lost_and_every_run_ends_the_same(workbench, tmp_path, is_long, figure):
    wanted = LONG_COUNTS if is_long else SHORT_COUNTS
    num_killed = Counter[str]()
    victims = [victim for victim, count in wanted.items() for _ in range(count)]
    workbench.chance.shuffle(victims)
    for victim in victims:
        while not workbench.kill(victim):
            pass
        num_killed[victim] += 1
    workbench.wait_for(RunStatus.FINISHED)
    assert num_killed == wanted
    wait_until(lambda: len(processes_of(workbench.runs_root)) == 2, "workers to be gone")
    workbench.close()
    assert processes_of(workbench.runs_root) == []
    figure("killed", ", ".join(f"{victim} {count}" for victim, count in sorted(num_killed.items())))
    figure("runs killed and resumed", f"{len(workbench.whole_before)} resumes of {len(workbench.runs)} runs")
    check_runs(workbench, tmp_path, figure)


def check_runs(workbench, tmp_path, figure):
    whole = RunDirectory.create(tmp_path / "whole", small_spec(NUM_STEPS, CHECKPOINT_INTERVAL))
    assert train(whole) is RunStatus.FINISHED
    assert ingest_all(workbench.runs_root, None)
    for run in workbench.runs:
        recorded.assert_same_end(run, whole)
    figure("runs with the weights and buffer of one that was left alone", f"{len(workbench.runs)}")
    assert resumed_too_early(workbench) == []
    figure("training lost", "never more than since the newest whole checkpoint")
    num_events = sum(events_are_once(workbench.runs_root, run) for run in workbench.runs)
    figure("recorded events in the database exactly once", f"{num_events:,} of {num_events:,}")
    with closing(sqlite3.connect(workbench.runs_root / SQLITE_FILE)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    figure("stray processes", "0")


def resumed_too_early(workbench):
    """Return the attempts that went back behind a checkpoint that was whole before the kill."""
    database = open_database(None, workbench.runs_root)
    found = {
        (run.run_id, row.attempt): row.resumed_from_step
        for run in workbench.runs
        for row in list_attempts(database, run.run_id)
    }
    database.close()
    steps = {item: found.get(item) for item in workbench.whole_before}
    return [name for name, step in steps.items() if step is not None and step < workbench.whole_before[name]]


def events_are_once(runs_root, run):
    """Check that the database knows each recorded event of a run once, and holds each step once; return how many."""
    events = EventReader(run).read(max_steps=1_000_000).events
    written = Counter((event["attempt"], event["seq"]) for event in events)
    with closing(sqlite3.connect(runs_root / SQLITE_FILE)) as connection:
        (key,) = connection.execute("SELECT run_key FROM runs WHERE run_id = ?", (run.run_id,)).fetchone()
        known = Counter(connection.execute("SELECT attempt, seq FROM ingested_events WHERE run_key = ?", (key,)))
        kept = connection.execute("SELECT step FROM steps WHERE run_key = ? ORDER BY step", (key,)).fetchall()
    assert known == written
    assert kept == [(step,) for step in range(1, NUM_STEPS + 1)]
    return len(written)
