"""A run of the verl engine on two ranks that ends by kill -9, apart from the others so that both cores are busy."""

import pytest

from tests.jobs.engines.verl_ray.runs import NUM_STEPS, new_run, processes_left, start_worker, steps_of, wait_for_step

pytestmark = [pytest.mark.verl, pytest.mark.slow, pytest.mark.timeout(3600)]


def test_on_policy_run_with_a_kl_penalty_on_two_ranks_leaves_its_steps_and_no_process_when_killed(tmp_path):
    run = new_run(tmp_path, num_ranks=2, experience_ratio=0.0, kl_coefficient=0.1, num_steps=1000)
    process, mark = start_worker(run)
    wait_for_step(process, run, NUM_STEPS)
    assert process.poll() is None, run.log_path.read_text()[-3000:]
    process.kill()
    process.wait()
    assert processes_left(mark) == []
    metrics = [event["metrics"] for _, event in sorted(steps_of(run).items())]
    assert len(metrics) >= NUM_STEPS
    assert all(own["replay/num_replayed"] == own["buffer/num_questions"] == 0 for own in metrics)
    assert all(own["optim/gradient_norm"] > 0.0 for own in metrics)
    # Until its first update the policy is its own reference, which it leaves from then on.
    assert 0.0 <= metrics[0]["loss/kl"] < metrics[-1]["loss/kl"]
