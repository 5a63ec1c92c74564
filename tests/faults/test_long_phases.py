"""Row 17: stops of runs whose steps, evaluations and checkpoints take longer than the shortest grace."""

import contextlib

import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.runs.attempts import read_heartbeat
from exgrpo.jobs.runs.checkpoints import open_newest
from exgrpo.jobs.runs.control import Phase
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import Bench, toy_spec, wait_until

pytestmark = pytest.mark.fault_row(17)


@pytest.mark.parametrize("phase", [Phase.STEP, Phase.EVALUATION, Phase.CHECKPOINT])
def test_a_stop_in_a_phase_longer_than_the_shortest_grace_loses_no_step(tmp_path, phase, figure):
    bench = Bench(tmp_path)
    run_id = bench.submit(toy_spec(1000, "long-phases", checkpoint_interval=1))
    with contextlib.closing(bench.start(grace_seconds=0.05, term_seconds=0.05)):
        bench.look_until(run_id, RunStatus.RUNNING)
        bench.wait_for_step(run_id, 2)
        run = bench.run_of(run_id)
        wait_until(lambda: read_heartbeat(run.attempt_path(1)).phase is phase, f"the phase {phase}")
        run_actions.stop(bench.runs_root, run_id)
        bench.look_until(run_id, RunStatus.STOPPED)
        assert bench.supervisor.state_of(run_id).reason == ""
        assert open_newest(run.checkpoints_path, lambda checkpoint: checkpoint.step)[1] == bench.step_of(run_id)
    figure(f"stopped in {phase}", "at the step's end, with a checkpoint")
