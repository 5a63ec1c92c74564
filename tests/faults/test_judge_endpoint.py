"""A judge's endpoint that misbehaves in every way, and a judge's job that is killed at the same time."""

import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from jobs.judging.client import MAX_BODY_BYTES
from jobs.judging.votes import read_recorded_votes
from jobs.runs.attempts import read_outcome
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from tests.jobs.judging.chain_runs import new_job, record_chains, server_spec, votes_of
from tests.jobs.judging.judge_server import JudgeServer, Reply, completion, judge_as_oracle, serving

pytestmark = [pytest.mark.fault_row(10), pytest.mark.timeout(1200)]

NUM_STEPS = {False: 12, True: 60}
NUM_KILLS = {False: 2, True: 10}
TIMEOUT_SECONDS = 3.0
"""Of good answers too, which take their time where the machine is busy."""

GOOD = ("good", "")
FAULTS = (
    GOOD,
    ("429", "http_429"),
    ("500", "http_500"),
    ("never", "timeout"),
    ("drip", "timeout"),
    ("cut JSON", "no_completion_json"),
    ("cut body", "connection: RemoteProtocolError"),
    ("HTML", "no_completion_json"),
    ("10 MB", "answer_too_large"),
    ("10 MB of JSON", "answer_too_large"),
    ("both verdicts", "both_verdicts"),
)
REASONS = dict(FAULTS)


def misbehave(fault: str, body: dict[str, object]) -> Reply:
    """Answer as a server with this fault does; a careless reader would take each for "valid"."""
    yes = completion("\\boxed{yes}")
    large = b"x" * (10 << 20)
    replies = {
        "429": Reply("\\boxed{yes}", 429),
        "500": Reply("\\boxed{yes}", 500),
        "drip": Reply(yes.content, piece_bytes=1, pause_seconds=3 * TIMEOUT_SECONDS / len(yes.content)),
        "cut JSON": Reply(yes.content[: yes.content.index(b"yes") + 4]),
        "cut body": Reply(yes.content, cut_at=40),
        "HTML": Reply("<html><body>\\boxed{yes}</body></html>", headers={"Content-Type": "text/html"}),
        "10 MB": Reply(large, piece_bytes=1 << 18),
        "10 MB of JSON": completion(large.decode() + "\\boxed{yes}"),
        "both verdicts": completion("\\boxed{no} or rather \\boxed{yes}"),
    }
    if fault == "never":
        time.sleep(3 * TIMEOUT_SECONDS)
        return yes
    return replies[fault] if fault in replies else judge_as_oracle(body)


class FaultyServer:
    """Gives each question a fault of its own, the same whenever it is asked; every other one is answered well."""

    def __init__(self, server: JudgeServer) -> None:
        self.server = server
        self.faults: dict[str, str] = {}
        self.num_answered: Counter[str] = Counter()
        self._next = itertools.cycle(name for fault in FAULTS for name in (fault[0], GOOD[0]))
        server.behaviour = self.answer

    def answer(self, body: dict[str, object]) -> Reply:
        key = self.server.headers[-1]["Idempotency-Key"]
        fault = self.faults.setdefault(key, next(self._next)) if key not in self.faults else self.faults[key]
        reply = misbehave(fault, body)
        self.num_answered[key] += 1
        return reply


def start_worker(job: RunDirectory) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "jobs.worker", str(job.path), str(job.claim_attempt())]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def kill_after(worker: "subprocess.Popen[bytes]", server: JudgeServer, num_bodies: int, pause_seconds: float) -> None:
    while len(server.bodies) < num_bodies:
        assert worker.poll() is None, "the judge ended before its last kill"
        time.sleep(0.005)
    time.sleep(pause_seconds)
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()


def test_every_fault_is_unjudged_and_a_killed_job_pays_nothing_twice(tmp_path: Path, is_long, figure):
    num_kills, rng = NUM_KILLS[is_long], random.Random(10)
    record_chains(tmp_path, [["valid", "lucky", "wrong", "code"]] * NUM_STEPS[is_long])
    num_items = 3 * NUM_STEPS[is_long]
    with serving() as server:
        faulty = FaultyServer(server)
        job = new_job(tmp_path, server_spec(server.address, num_tries=1, timeout_seconds=TIMEOUT_SECONDS))
        for kill in range(1, num_kills + 1):
            kill_after(start_worker(job), server, kill * num_items // (num_kills + 2), rng.uniform(0.0, 0.05))
        assert start_worker(job).wait(timeout=900) == 0
        asked = Counter(headers["Idempotency-Key"] for headers in server.headers)
    outcome = read_outcome(job.attempt_path(num_kills + 1))
    assert outcome is not None
    assert outcome.status is RunStatus.FINISHED
    check_votes(job, faulty, num_items)
    num_again = sum(asked.values()) - len(asked)
    # A request that a kill cut off before its answer was on disk is asked again, under the same key; nothing else is.
    assert len(asked) == num_items
    assert num_again <= num_kills
    assert max(asked.values()) <= 1 + num_kills
    recorded = read_recorded_votes(job)
    assert sum(asked.values()) <= recorded.num_requests <= sum(asked.values()) + num_kills
    figure("requests", f"{sum(asked.values())} for {num_items} questions, {len(FAULTS) - 1} kinds of fault")
    figure("kills of the judge's job", f"{num_kills}, {num_again} requests cut off and asked again under their keys")


def check_votes(job: RunDirectory, faulty: FaultyServer, num_items: int) -> None:
    """Check that what was answered well has its verdict, and all else is unjudged with its reason."""
    votes = votes_of(job)
    assert len(votes) == len({vote.key for vote in votes}) == num_items
    reasons = Counter((vote.outcome, vote.reason) for vote in votes if vote.outcome == "unjudged")
    expected = Counter(("unjudged", REASONS[fault]) for fault in faulty.faults.values() if fault != GOOD[0])
    assert reasons == expected
    assert set(faulty.faults.values()) == set(REASONS)
    by_place = {0: "valid", 1: "invalid", 3: "invalid"}
    judged = [vote for vote in votes if vote.outcome != "unjudged"]
    assert {vote.outcome == by_place[(vote.trajectory_id or 0) % 4] for vote in judged} == {True}


def test_no_answer_is_read_beyond_its_bound():
    assert MAX_BODY_BYTES <= 4 << 20
