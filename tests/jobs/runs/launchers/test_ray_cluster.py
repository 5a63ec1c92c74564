"""What a real Ray cluster of one machine, which asks for a token, says of itself, and toy runs on it."""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import psutil
import pytest

from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.runs.launchers.local import LocalLauncher
from exgrpo.jobs.runs.launchers.ray_jobs import RayJobsLauncher
from exgrpo.jobs.runs.launchers.ray_jobs_api import RayJobsApi, RayJobStatus
from exgrpo.jobs.runs.processes import ProcessIdentity, group_members, identify
from exgrpo.jobs.specs.train import parse_spec
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.runs.launchers.ray_bench import RayBench, ray_spec
from tests.jobs.runs.launchers.ray_cluster import NUM_GPUS, TOKEN, RayCluster
from tests.jobs.training.engines.verl_ray.runs import RUN_SECONDS, run_content, steps_of
from tests.processes import is_gone

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(1200)]

MANY_STEPS = 100_000
UNSEEN = Path("/where-nothing-is/storage-check")


def test_ends_are_told_in_one_sentence_and_logged(ray_bench: RayBench, cluster: RayCluster):
    good, failing, exiting = (
        ray_bench.submit(ray_spec(cluster.address, 3, *tags)) for tags in ((), ("fails",), ("exits",))
    )
    ray_bench.start(max_running=3)
    ray_bench.look_until(good, RunStatus.FINISHED)
    ray_bench.look_until(failing, RunStatus.FAILED)
    ray_bench.look_until(exiting, RunStatus.FAILED)
    log = ray_bench.log_of(good)
    assert f"{NUM_GPUS} free GPUs, storage shared" in log
    assert log.count("The toy speaks.") == 1
    assert log.rstrip().endswith(f"Attempt 1 of {good}: finished.")
    assert ray_bench.reason_of(failing) == "data.source: the toy data are missing."
    assert "Traceback" in ray_bench.log_of(failing)
    assert "exit code 7" in ray_bench.reason_of(exiting)


def test_job_goes_on_without_a_supervisor_and_the_next_one_adopts_and_stops_it(
    ray_bench: RayBench, cluster: RayCluster
):
    run_id = ray_bench.submit(ray_spec(cluster.address, MANY_STEPS))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.RUNNING)
    ray_bench.supervisor.close()
    step = ray_bench.step_of(run_id)
    ray_bench.wait_for_step(run_id, step + 5)
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.RUNNING)
    ray_bench.look_while(lambda: "The toy speaks." not in ray_bench.log_of(run_id), "the job's output while it runs")
    run_actions.stop(ray_bench.runs_root, run_id)
    ray_bench.look_until(run_id, RunStatus.STOPPED)
    assert ray_bench.reason_of(run_id) == ""
    assert list(ray_bench.run_of(run_id).checkpoints_path.glob("step-*"))
    assert ray_bench.run_of(run_id).attempts() == [1]
    assert ray_bench.log_of(run_id).count("The toy speaks.") == 1
    api = RayJobsApi(cluster.address, TOKEN)
    assert api.job(f"{run_id}-0001").status is RayJobStatus.SUCCEEDED
    assert api.asks_for_token()
    api.close()


def test_stop_by_force_ends_what_no_list_of_children_names(ray_bench: RayBench, cluster: RayCluster):
    run_id = ray_bench.submit(ray_spec(cluster.address, 3, "leaves-orphan", "stuck"))
    ray_bench.start(grace_seconds=0.5)
    orphan_file = ray_bench.run_of(run_id).path / "child.pid"
    ray_bench.look_while(lambda: not orphan_file.exists(), "the orphan")
    orphan = int(orphan_file.read_text())
    assert psutil.pid_exists(orphan)
    run_actions.stop(ray_bench.runs_root, run_id)
    ray_bench.look_until(run_id, RunStatus.STOPPED)
    assert "was killed" in ray_bench.reason_of(run_id)
    assert is_gone(orphan)
    assert not cluster.is_running(str(ray_bench.runs_root))


def test_stop_while_the_cluster_is_asked_starts_nothing(ray_bench: RayBench, cluster: RayCluster):
    run_id = ray_bench.submit(ray_spec(cluster.address))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.STARTING)
    run_actions.stop(ray_bench.runs_root, run_id)
    ray_bench.look_until(run_id, RunStatus.STOPPED)
    api = RayJobsApi(cluster.address, TOKEN)
    assert api.job(f"{run_id}-0001") is None
    api.close()


def test_runs_root_that_the_cluster_does_not_see_is_refused(ray_bench: RayBench, cluster: RayCluster, monkeypatch):
    probe = RayJobsLauncher._probe
    monkeypatch.setattr(RayJobsLauncher, "_probe", lambda self, action, _, wanted: probe(self, action, UNSEEN, wanted))
    run_id = ray_bench.submit(ray_spec(cluster.address))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.FAILED)
    assert str(ray_bench.runs_root) in ray_bench.reason_of(run_id)
    assert str(UNSEEN.parent) in ray_bench.reason_of(run_id)


@pytest.mark.timeout(3600)
def test_verl_itself_trains_on_the_cluster_on_two_ranks_with_a_kl_penalty_until_it_is_stopped(
    ray_bench: RayBench, cluster: RayCluster
):
    environment = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    content = run_content(num_ranks=2, experience_ratio=0.0, kl_coefficient=0.1, num_steps=1000)
    # One server for both ranks; each of two has its own in the engine's tests.
    content["verl"] |= {"tensor_parallel": 2, "ray": {"address": cluster.address, "environment": environment}}
    run_id = ray_bench.submit(parse_spec(content, "test"))
    ray_bench.launcher = LocalLauncher()
    ray_bench.start(grace_seconds=300.0)
    ray_bench.look_until(run_id, RunStatus.RUNNING)
    ray_bench.look_while(lambda: ray_bench.step_of(run_id) < 4, "the run's steps", RUN_SECONDS)
    run_actions.stop(ray_bench.runs_root, run_id)
    ray_bench.look_until(run_id, RunStatus.STOPPED)
    assert ray_bench.reason_of(run_id) == ""
    run = ray_bench.run_of(run_id)
    steps = steps_of(run)
    assert sorted(steps) == list(range(1, len(steps) + 1))
    assert (run.checkpoints_path / f"step-{len(steps):08d}" / "manifest.json").is_file()
    metrics_by_step = [steps[step]["metrics"] for step in sorted(steps)]
    assert all(item["replay/num_replayed"] == item["buffer/num_questions"] == 0 for item in metrics_by_step)
    assert all(entry["optim/gradient_norm"] > 0.0 for entry in metrics_by_step)
    # Until its first update the policy is its own reference, which it leaves from then on.
    assert 0.0 <= metrics_by_step[0]["loss/kl"] < metrics_by_step[-1]["loss/kl"]


@pytest.mark.usefixtures("cluster")
def test_a_run_without_a_cluster_starts_a_ray_that_leaves_no_process_when_its_worker_is_killed(ray_bench: RayBench):
    run_id = ray_bench.submit(ray_spec(None, MANY_STEPS, "starts-ray"))
    ray_bench.start()
    ray_bench.look_until(run_id, RunStatus.RUNNING)
    session = ray_bench.run_of(run_id).path / "session"
    ray_bench.look_while(lambda: not session.exists(), "a Ray of its own")
    worker = identify(ray_bench.worker_pid(run_id))
    assert {"raylet", "gcs_server", "ray::DashboardAgent"} <= names_of(worker)
    os.kill(worker.pid, signal.SIGKILL)
    ray_bench.look_until(run_id, RunStatus.LOST)
    assert names_of(worker) == set()
    shutil.rmtree(session.read_text(), ignore_errors=True)


def names_of(worker: ProcessIdentity) -> set[str]:
    found = set()
    for pid in group_members(worker):
        with contextlib.suppress(psutil.Error):
            found.add(psutil.Process(pid).name())
    return found
