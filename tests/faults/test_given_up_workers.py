"""Row 7: a worker that was given up and continues when its run was resumed: it ends itself and is not heard."""

import random
import signal
import subprocess
import sys
import time

import psutil
import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries import metrics, runs
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.attempts import read_heartbeat, read_outcome, write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo_core.recording.attempt_gate import EXIT_NOT_MINE
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import TIMEOUT_SECONDS, toy_spec, wait_until

pytestmark = [pytest.mark.fault_row(7), pytest.mark.timeout(1200)]

NUM_STOPS = {False: 2, True: 10}
MORE_STEPS_THAN_ARE_DONE = 100_000

MAGIC = b"\x1f\x8b\x08\x04"


def start_toy(program, *words):
    command = [sys.executable, "-m", f"tests.jobs.execution.supervisor.{program}", *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
def test_worker_that_was_given_up_and_continues_ends_itself_and_is_not_heard(tmp_path, is_long, figure):
    rng = random.Random(7)
    for number in range(NUM_STOPS[is_long]):
        runs_root = tmp_path / f"runs-{number}"
        runs_root.mkdir()
        give_up_and_continue(runs_root, rng.uniform(0.0, 0.2))
    figure("workers given up and continued", f"{NUM_STOPS[is_long]}, all ended themselves, nothing of theirs was taken")


def give_up_and_continue(runs_root, pause_seconds):
    """Stop a worker of another machine, resume its run, let the worker continue; it must change nothing."""
    run = RunDirectory.create(runs_root, toy_spec(MORE_STEPS_THAN_ARE_DONE, checkpoint_interval=1))
    run.claim_attempt(1)
    old = start_toy("toy_worker", str(run.path), "1")
    wait_until(lambda: step_of(run) >= 2, "two steps")
    time.sleep(pause_seconds)
    old.send_signal(signal.SIGSTOP)
    wait_until(lambda: psutil.Process(old.pid).status() == psutil.STATUS_STOPPED, "the stop")
    write_outcome(run.attempt_path(1), RunStatus.LOST, "Its cluster is gone or out of reach.")
    run.claim_attempt(2)
    new = start_toy("toy_worker", str(run.path), "2")
    wait_until(lambda: step_of(run, 2) > 0, "the new worker's steps")
    before = events_of(run.attempt_path(1))
    old.send_signal(signal.SIGCONT)
    assert old.wait(timeout=TIMEOUT_SECONDS) == EXIT_NOT_MINE
    run.request_stop()
    assert new.wait(timeout=TIMEOUT_SECONDS) == 0
    # What the kernel was already writing when the stop came may be finished; a new step is not begun.
    after = events_of(run.attempt_path(1))
    assert after.startswith(before)
    assert after.count(MAGIC) - before.count(MAGIC) <= 1
    outcome = read_outcome(run.attempt_path(1))
    assert outcome is not None
    assert outcome.status is RunStatus.LOST
    ingest_all(runs_root, None)
    assert shown(runs_root, run) == ("stopped", list(range(1, step_of(run, 2) + 1)))


def events_of(attempt_path):
    return b"".join(path.read_bytes() for path in sorted(attempt_path.glob("record-*")))


def step_of(run, attempt=1):
    heartbeat = read_heartbeat(run.attempt_path(attempt))
    return heartbeat.step if heartbeat else 0


def shown(runs_root, run):
    database = open_database(None, runs_root)
    row = runs.get_run(database, run.run_id)
    series = metrics.metric_series(database, run.run_id, ["reward/mean"])["reward/mean"]
    database.close()
    assert row is not None
    return row.status, [point.step for point in series]
