"""Runs of the verl engine on two ranks and under kill -9, apart from the others so that both cores are busy."""

import signal
import time

import pytest

from tests.jobs.engines.verl_ray.runs import NUM_STEPS, new_run, processes_left, start_worker, steps_of, work

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_on_policy_run_with_a_kl_penalty_on_two_ranks(tmp_path):
    run = new_run(tmp_path, num_ranks=2, experience_ratio=0.0, kl_coefficient=0.1)
    assert work(run) == "succeeded"
    metrics = [event["metrics"] for event in steps_of(run).values()]
    assert len(metrics) == NUM_STEPS
    assert all(own["replay/num_replayed"] == own["buffer/num_questions"] == 0 for own in metrics)
    assert all(own["optim/gradient_norm"] > 0.0 for own in metrics)
    # Until its first update the policy is its own reference, which it leaves from then on.
    assert 0.0 <= metrics[0]["loss/kl"] < metrics[-1]["loss/kl"]


def test_killed_worker_leaves_no_process_behind(tmp_path):
    run = new_run(tmp_path)
    process, mark = start_worker(run)
    while process.poll() is None and b"actor and ref model engine initialized" not in run.log_path.read_bytes():
        time.sleep(0.2)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert processes_left(mark) == []
