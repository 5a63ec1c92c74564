"""Row 10: kill -9 of a judge's job with requests under way."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from exgrpo.jobs.evaluation.judging.verdicts import read_recorded_votes
from exgrpo.jobs.runs.attempts import read_outcome
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.evaluation.judging.chain_runs import new_job, record_chains, server_spec, votes_of
from tests.jobs.evaluation.judging.judge_server import judge_as_oracle, serving

pytestmark = [pytest.mark.fault_row(10), pytest.mark.slow]


def test_a_killed_judge_pays_for_no_answer_twice(tmp_path, figure):
    record_chains(tmp_path, [["valid", "lucky", "wrong", "code"]] * 10)
    may_answer = threading.Semaphore(7)

    def answer_some(body):
        may_answer.acquire()
        return judge_as_oracle(body)

    with serving(answer_some) as server:
        job = new_job(tmp_path, server_spec(server.address, num_parallel=2, timeout_seconds=60.0))
        worker = subprocess.Popen(
            [sys.executable, "-m", "exgrpo.jobs.execution.worker", str(job.path), str(job.claim_attempt())]
        )
        while len(votes_of(job)) < 7 or len(server.bodies) < 9:
            assert worker.poll() is None
            time.sleep(0.05)
        os.kill(worker.pid, signal.SIGKILL)
        worker.wait()
        recorded = read_recorded_votes(job)
        assert (len(recorded.votes), recorded.num_requests) == (7, 9)
        may_answer.release(1000)
        again = [sys.executable, "-m", "exgrpo.jobs.execution.worker", str(job.path), str(job.claim_attempt())]
        assert subprocess.run(again, check=False, timeout=120).returncode == 0
        asked = [headers["Idempotency-Key"] for headers in server.headers]
    assert read_outcome(job.attempt_path(2)).status is RunStatus.FINISHED
    assert len(votes_of(job)) == len({vote.key for vote in votes_of(job)}) == 30
    # The two that the kill cut off are asked again, under the same keys; whatever was answered is not.
    assert (len(asked), len(set(asked))) == (32, 30)
    figure("requests of a killed judge", f"{len(asked)} for 30 votes, two cut off and asked again under their keys")
