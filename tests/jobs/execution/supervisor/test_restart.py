import contextlib
import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.runs import get_run
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.cli.following import RunFollower
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.attempts import Heartbeat, write_heartbeat
from exgrpo.jobs.runs.checkpoints import list_steps
from exgrpo.jobs.runs.control import INTERRUPTED
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.processes import identify
from exgrpo.jobs.runs.state import SupervisorRunningError, read_state
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import Bench, toy_spec, wait_until

pytestmark = pytest.mark.slow

SUPERVISOR = "tests.jobs.execution.supervisor.toy_supervisor"


def start_supervisor(runs_root: Path, *options: str) -> subprocess.Popen:
    return subprocess.Popen([sys.executable, "-m", SUPERVISOR, "--runs-root", str(runs_root), *options])


def end(process: subprocess.Popen, number: int = signal.SIGKILL) -> int:
    process.send_signal(number)
    return process.wait(timeout=20)


@pytest.fixture
def orphaned(bench: Bench) -> str:
    run_id = bench.submit(toy_spec(4_000))
    first = start_supervisor(bench.runs_root)
    bench.wait_for_step(run_id, 3)
    end(first)
    return run_id


def test_restarted_supervisor_adopts_the_running_worker_and_starts_no_second_one(bench: Bench, orphaned):
    worker, step = bench.worker_pid(orphaned), bench.step_of(orphaned)
    bench.wait_for_step(orphaned, step + 3)
    bench.start()
    bench.look_until(orphaned, RunStatus.RUNNING)
    assert bench.worker_pid(orphaned) == worker
    assert bench.run_of(orphaned).attempts() == [1]
    run_actions.stop(bench.runs_root, orphaned)
    bench.look_until(orphaned, RunStatus.STOPPED)


def test_ending_a_supervisor_leaves_its_run_going_whose_end_the_next_one_tells_right(bench: Bench):
    run_id = bench.submit(toy_spec(4_000))
    supervisor = start_supervisor(bench.runs_root)
    bench.wait_for_step(run_id, 2)
    assert end(supervisor, signal.SIGINT) == 0
    bench.wait_for_step(run_id, bench.step_of(run_id) + 5)
    bench.run_of(run_id).request_stop()
    wait_until(lambda: read_state(bench.run_of(run_id)).is_ended, "the run's end")
    bench.start()
    bench.look_until(run_id, RunStatus.STOPPED)
    assert bench.reason_of(run_id) == ""


def test_worker_killed_while_no_supervisor_looked_is_lost(bench: Bench, orphaned):
    os.kill(bench.worker_pid(orphaned), signal.SIGKILL)
    bench.start()
    bench.look_until(orphaned, RunStatus.LOST)


def test_supervisors_that_start_together_give_a_run_one_worker(bench: Bench):
    run_id = bench.submit(toy_spec(1_000))
    together = [start_supervisor(bench.runs_root, "--until-idle") for _ in range(3)]
    # A supervisor that starts after the end of the run may kill what is left of it.
    wait_until(lambda: [item.poll() for item in together].count(None) == 1, "two of them to leave")
    bench.wait_for_step(run_id, 2)
    with pytest.raises(SupervisorRunningError):
        bench.start()
    run_actions.stop(bench.runs_root, run_id)
    codes = sorted(process.wait(timeout=60) for process in together)
    assert codes == [0, 1, 1]
    assert bench.run_of(run_id).attempts() == [1]
    assert read_state(bench.run_of(run_id)).status is RunStatus.STOPPED


def test_a_shutdown_interrupts_a_run_which_the_next_supervisor_resumes_before_it_starts_others(bench: Bench):
    run_id, queued = bench.submit(toy_spec(5000)), bench.submit(toy_spec(5000))
    run = bench.run_of(run_id)
    supervisor = start_supervisor(bench.runs_root, "--stop-runs")
    bench.wait_for_step(run_id, 3)
    assert end(supervisor, signal.SIGTERM) == 0
    state, (saved,) = read_state(run), list_steps(run.checkpoints_path)
    assert (state.status, state.reason, state.heartbeat.step) == (RunStatus.STOPPED, INTERRUPTED, saved)
    assert ingest_all(bench.runs_root, None)
    assert (read_state(run).status, run.attempts(), run.is_interrupted()) == (RunStatus.STOPPED, [1], True)
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    assert bench.status_of(queued) is RunStatus.QUEUED
    bench.look_while(lambda: bench.step_of(run_id) <= saved, "a step of the second attempt")
    run_actions.stop(bench.runs_root, run_id)
    run.request_stop(for_shutdown=True)
    bench.look_until(run_id, RunStatus.STOPPED)
    assert (bench.reason_of(run_id), run.attempts()) == ("", [1, 2])
    run_actions.stop(bench.runs_root, queued)
    bench.look_until(queued, RunStatus.STOPPED)


def test_a_shutdown_waits_for_no_run_that_cannot_be_asked_and_interrupts_the_others(bench: Bench, monkeypatch):
    ask = RunDirectory.request_stop

    def refuse_one(run, **options):
        if run.run_id == odd:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        ask(run, **options)

    odd, other = bench.submit(toy_spec(5000)), bench.submit(toy_spec(5000))
    supervisor = bench.start(max_running=2)
    for run_id in (odd, other):
        bench.look_until(run_id, RunStatus.RUNNING)
    monkeypatch.setattr(RunDirectory, "request_stop", refuse_one)
    supervisor.interrupt()
    bench.look_while(lambda: not supervisor.is_interrupted, "the others to stop")
    assert (bench.status_of(odd), bench.reason_of(other)) == (RunStatus.RUNNING, INTERRUPTED)
    ask(bench.run_of(odd))
    bench.look_until(odd, RunStatus.STOPPED)


def test_a_run_that_is_killed_in_a_shutdown_is_resumed_from_its_newest_checkpoint_by_the_next_workbench(bench: Bench):
    run_id = bench.submit(toy_spec(5000, "long-phases", checkpoint_interval=2))
    run, queued = bench.run_of(run_id), bench.submit(toy_spec())
    supervisor = start_supervisor(bench.runs_root, "--stop-runs")
    bench.wait_for_step(run_id, 3)
    left_by_a_command = start_supervisor(bench.runs_root, "--wait", "--until-idle")
    supervisor.terminate()
    wait_until(run.is_interrupted, "the supervisor's request")
    end(supervisor)
    os.kill(bench.worker_pid(run_id), signal.SIGKILL)
    assert list_steps(run.checkpoints_path) == [2]
    assert (left_by_a_command.wait(timeout=60), run.attempts()) == (0, [1])
    with contextlib.closing(RunFollower(bench.runs_root, None, queued)) as waiting_command:
        state = waiting_command.poll()
    assert (state.status, state.reason, bench.run_of(queued).attempts()) == (RunStatus.STOPPED, INTERRUPTED, [])
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.look_while(lambda: bench.step_of(run_id) < 3, "a step of the second attempt")
    assert run.attempts() == [1, 2]
    assert bench.status_of(queued) is RunStatus.QUEUED


def test_second_worker_of_an_attempt_leaves_without_touching_it(bench: Bench):
    run_id = bench.submit(toy_spec(100))
    bench.start()
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 2)
    command = [sys.executable, "-m", "tests.jobs.execution.supervisor.toy_worker", str(bench.run_of(run_id).path), "1"]
    assert subprocess.run(command, stderr=subprocess.DEVNULL, timeout=120, check=False).returncode == 3
    bench.look_until(run_id, RunStatus.FINISHED)


def test_attempt_that_was_claimed_but_never_started_is_lost_after_a_while(bench: Bench):
    run_id = bench.submit(toy_spec(2))
    path = bench.run_of(run_id).path
    bench.run_of(run_id).claim_attempt(1)
    long_ago = time.time() - 3600
    os.utime(bench.run_of(run_id).attempt_path(1), (long_ago, long_ago))
    bench.start()
    bench.look_until(run_id, RunStatus.LOST)
    assert "never started" in bench.reason_of(run_id)
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.FINISHED)
    assert RunDirectory(path).attempts() == [1, 2]
    # A copy from another machine has no heartbeat, but what it recorded.
    for name in ("outcome.json", "heartbeat.json"):
        (bench.run_of(run_id).attempt_path(2) / name).unlink()
    os.utime(bench.run_of(run_id).attempt_path(2), (long_ago, long_ago))
    assert "without an outcome" in read_state(RunDirectory(path)).reason


def test_broken_folders_hold_up_no_other_run_and_are_listed(bench: Bench):
    (bench.runs_root / "no-run").mkdir()
    (bench.runs_root / "broken").mkdir()
    (bench.runs_root / "broken" / "run.json").write_text("{")
    (bench.runs_root / "broken" / "spec.json").write_text("[]")
    run_id = bench.submit(toy_spec(2))
    bench.start()
    bench.look_until(run_id, RunStatus.FINISHED)
    with contextlib.closing(open_database(None, bench.runs_root)) as database:
        broken = get_run(database, "broken")
    assert broken is not None
    assert broken.faults


def test_worker_of_an_earlier_boot_is_gone_even_if_its_pid_lives(bench: Bench):
    run_id = bench.submit(toy_spec(2))
    path = bench.run_of(run_id).attempt_path(bench.run_of(run_id).claim_attempt(1))
    identity = replace(identify(os.getpid()), boot_id="another")
    write_heartbeat(path, Heartbeat(identity, RunStatus.RUNNING, 0, datetime.now(UTC)))
    bench.start()
    bench.look_until(run_id, RunStatus.LOST)


def test_a_copied_folder_of_a_living_run_ends_nothing_of_the_original(bench: Bench, orphaned):
    worker = bench.worker_pid(orphaned)
    # A file that the worker renames during the copy would be missing.
    os.kill(worker, signal.SIGSTOP)
    shutil.copytree(bench.run_of(orphaned).path, bench.runs_root / "copy")
    os.kill(worker, signal.SIGCONT)
    bench.run_of("copy").request_stop()
    bench.start(grace_seconds=0.0, term_seconds=0.0)
    bench.look_until("copy", RunStatus.LOST, RunStatus.STOPPED)
    step = bench.step_of(orphaned)
    bench.wait_for_step(orphaned, step + 3)
    bench.look_until(orphaned, RunStatus.RUNNING)


def test_a_queued_run_whose_folder_was_removed_is_not_waited_for(bench: Bench):
    running = bench.submit(toy_spec(5))
    queued = bench.submit(toy_spec(5))
    bench.start()
    bench.supervisor.poll()
    shutil.rmtree(bench.run_of(queued).path)
    bench.look_until(running, RunStatus.FINISHED)
    bench.supervisor.poll()
    assert bench.supervisor.is_idle


@pytest.mark.parametrize("number", [errno.EACCES, errno.ENOSPC])
def test_a_start_that_is_refused_is_tried_again_for_want_of_room_alone(bench: Bench, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    run_id = bench.submit(toy_spec())
    supervisor = bench.start()
    with monkeypatch.context() as full:
        full.setattr(RunDirectory, "claim_attempt", refuse)
        supervisor.poll()
    assert supervisor.is_idle is (number == errno.EACCES)
    if not supervisor.is_idle:
        bench.look_until(run_id, RunStatus.FINISHED)
