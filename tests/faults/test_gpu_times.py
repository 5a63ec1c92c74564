"""Rows 17 and 18: steps and checkpoints that last minutes, scaled, and a stop in each phase or writes that hang."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from jobs.actions import run_actions
from jobs.launchers.local import LocalLauncher
from jobs.runs.checkpoints import PREFIX, list_checkpoints
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.loop import Supervisor, SupervisorSettings
from jobs.supervisor.watch import StopPolicy
from tests.faults import recorded
from tests.faults.gpu_like_worker import HANG_FILE, SAID_FILE, TIME_SCALE
from tests.faults.small_training import small_spec, train
from tests.jobs.supervisor.toy_bench import Bench, processes_of, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.long_fault]

NUM_STEPS = 30
PHASES = {"r": "rollout", "s": "score", "u": "update", "e": "evaluation", "w": "checkpoint"}
SHORTEST_GRACE_SECONDS = 120.0 * TIME_SCALE if TIME_SCALE > 0.05 else 60.0
"""At a small scale a busy machine, not the phases, decides how long a stop takes."""


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "runs")
    bench.runs_root.mkdir()
    settings = SupervisorSettings(1, StopPolicy(SHORTEST_GRACE_SECONDS, 1.0))
    launcher = LocalLauncher("tests.faults.gpu_like_worker", sys.executable)
    bench.supervisor = Supervisor(bench.runs_root, DatabaseIndex(None, bench.runs_root), launcher, settings)
    yield bench
    bench.supervisor.close()
    assert processes_of(bench.runs_root) == []


def said(bench: Bench) -> list[str]:
    path = bench.runs_root.parent / SAID_FILE
    return path.read_text().split() if path.exists() else []


def finish(bench: Bench, run_id: str) -> None:
    """Wait for each step: all together may last longer than is waited for anything."""
    bench.look_until(run_id, RunStatus.RUNNING)
    for step in range(bench.step_of(run_id), NUM_STEPS):
        bench.wait_for_step(run_id, step)
        bench.supervisor.poll()
    bench.look_until(run_id, RunStatus.FINISHED)


def assert_same_end(bench: Bench, run_id: str, folder: Path) -> None:
    whole = RunDirectory.create(folder / "whole", small_spec(NUM_STEPS, 4))
    assert train(whole) is RunStatus.FINISHED
    run = bench.run_of(run_id)
    assert recorded.policy_files(run, NUM_STEPS) == recorded.policy_files(whole, NUM_STEPS)
    assert recorded.buffer_content(run, NUM_STEPS) == recorded.buffer_content(whole, NUM_STEPS)


@pytest.mark.fault_row(17)
def test_a_stop_in_any_long_phase_ends_the_step_writes_a_checkpoint_and_is_resumed_to_the_same_end(
    bench, tmp_path, figure
):
    run_id = bench.submit(small_spec(NUM_STEPS, 4))
    for letter, name in PHASES.items():
        bench.look_until(run_id, RunStatus.RUNNING)
        before = len(said(bench))
        wait_until(lambda: "u" in said(bench)[before:], "a step of this attempt")  # noqa: B023 - waited for at once
        first = len(said(bench))
        wait_until(lambda: letter in said(bench)[first:], f"{name} of a later step")  # noqa: B023 - the same
        run_actions.stop(bench.runs_root, run_id)
        bench.look_until(run_id, RunStatus.STOPPED, RunStatus.LOST, RunStatus.FAILED)
        state = bench.supervisor.state_of(run_id)
        assert (state.status, state.reason) == (RunStatus.STOPPED, "")
        newest = list_checkpoints(bench.run_of(run_id).checkpoints_path)[0]
        assert int(newest.name.removeprefix(PREFIX)) == bench.step_of(run_id) > 0
        run_actions.resume(bench.runs_root, run_id)
        figure(f"stopped in {name}", "at the step's end, with a checkpoint")
    finish(bench, run_id)
    assert_same_end(bench, run_id, tmp_path)
    figure("steps of 150 s scaled to", f"{150 * TIME_SCALE:.2f} s")


@pytest.mark.fault_row(18)
def test_a_run_whose_writes_hang_is_left_alone_and_continues_by_itself(bench, tmp_path, figure):
    run_id = bench.submit(small_spec(NUM_STEPS, 4))
    bench.look_until(run_id, RunStatus.RUNNING)
    bench.wait_for_step(run_id, 5)
    flag, began_at = bench.runs_root.parent / HANG_FILE, time.monotonic()
    flag.touch()
    seen = set()
    while time.monotonic() - began_at < 1_200 * TIME_SCALE:
        bench.supervisor.poll()
        seen.add(bench.supervisor.state_of(run_id).status)
        time.sleep(0.05)
    flag.unlink()
    assert seen == {RunStatus.RUNNING}
    finish(bench, run_id)
    assert bench.run_of(run_id).newest_attempt() == 1
    assert_same_end(bench, run_id, tmp_path)
    figure("hung for", f"{1_200 * TIME_SCALE:.0f} s; running all the time, then finished in the same attempt")
