"""Recorded training runs on register chains, right ones and lucky hits, and what a judge's job needs around them."""

import contextlib
from pathlib import Path

import numpy as np

from exgrpo.jobs.evaluation.judging.judge_loop import run_judging
from exgrpo.jobs.evaluation.judging.verdicts import VOTES_EVENT, Vote
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.control import Phase
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.base import checked
from exgrpo.jobs.specs.judging import JudgeSpec
from exgrpo.jobs.specs.train import RecordingSpec, TrainSpec
from exgrpo.jobs.tasks.chains.oracle import judge_response
from exgrpo.jobs.tasks.chains.question_set import read_problem
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question, RolloutGroup, Trajectory

WRITINGS = {
    "valid": r"6;a*2=2;b*9=8;c-5=3;d*3=9;\boxed{9}",
    "lucky": r"6;a*2=2;b*9=7;c-5=2;d*3=9;\boxed{9}",
    "wrong": r"6;a*2=2;b*9=8;c-5=3;d*3=9;\boxed{3}",
    "code": "```python\nx=6\nx*=2\nx*=9\nx=((x-5)*3)\nx%=10\nprint(x)\n```\n" + r"\boxed{9}",
}
PROBLEM = "Q6a*2b*9c-5d*3:"


def chain_question() -> Question:
    metadata = {"data_source": "chains", "answer_kind": "chains", "difficulty": 4, "modulus": 10}
    return Question(0, "chain", np.arange(len(PROBLEM), dtype=np.int32), PROBLEM, "9", metadata)


def chain_trajectory(kind: str, trajectory_id: int, step: int) -> Trajectory:
    text = WRITINGS[kind]
    judgement = judge_response(read_problem(chain_question()), text)
    size = len(text)
    entropies = np.full(size, {"valid": 0.1, "lucky": 0.4, "wrong": 0.6, "code": 0.8}[kind], np.float32)
    return Trajectory(
        question_index=0, token_ids=np.arange(size, dtype=np.int32), log_probs=-entropies,
        reward=float(judgement.is_correct), text=text, verdict="correct" if judgement.is_correct else "wrong",
        is_valid=judgement.is_valid, has_code=judgement.has_code, entropies=entropies, trajectory_id=trajectory_id,
        rollout_step=step,
    )  # fmt: skip


def record_chains(
    runs_root: Path, steps: list[list[str]], run_id: str = "trained", *, first_step: int = 1
) -> RunDirectory:
    """Record one finished attempt whose steps each hold one group of these kinds of response; ids count from 0."""
    try:
        run = RunDirectory.open(runs_root, run_id)
    except ValueError:
        run = RunDirectory.create(runs_root, TrainSpec(name="chains"), run_id=run_id)
    attempt = run.claim_attempt()
    recorder = FileRecorder(run, attempt, RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions([chain_question()], "training")
    number = 4 * (first_step - 1)
    for step, kinds in enumerate(steps, start=first_step):
        trajectories = [chain_trajectory(kind, number + index, step) for index, kind in enumerate(kinds)]
        number += len(kinds)
        group = RolloutGroup(chain_question(), trajectories, (), np.zeros(len(kinds), np.float32))
        recorder.step(StepReport(step, False, [group]))
    recorder.close()
    # Without it a supervisor that starts gives the attempt's worker half a minute to appear.
    write_outcome(run.attempt_path(attempt), RunStatus.FINISHED, "")
    return run


class Switch:
    """A control whose stop is asked for after so many votes."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.stop_after = stop_after
        self.num_done = 0
        self.phases: list[Phase] = []

    def stop_requested(self) -> bool:
        return self.stop_after is not None and self.num_done >= self.stop_after

    def heartbeat(self, step: int) -> None:
        self.num_done = step

    def phase(self, phase: Phase) -> contextlib.AbstractContextManager[None]:
        self.phases.append(phase)
        return contextlib.nullcontext()


def server_spec(address: str, judged: dict[str, object] | None = None, **changes: object) -> JudgeSpec:
    job = {name: changes.pop(name) for name in ("num_votes",) if name in changes}
    server = {"address": address, "model": "judge", "num_parallel": 1, "retry_seconds": 0.01, "timeout_seconds": 5.0}
    content = {"judged": judged or {"run_id": "trained"}, "server": server | changes, **job}
    return checked(JudgeSpec, content, "test")


def oracle_spec(**judged: object) -> JudgeSpec:
    return checked(JudgeSpec, {"judge": "oracle", "judged": {"run_id": "trained"} | judged}, "test")


def new_job(runs_root: Path, spec: JudgeSpec) -> RunDirectory:
    return RunDirectory.create(runs_root, spec, run_id="judged")


def run_job(job: RunDirectory, control: Switch | None = None) -> RunStatus:
    recorder = FileRecorder(job, job.claim_attempt(), RecordingSpec())
    try:
        return run_judging(job.job_spec(), job, recorder, control or Switch())
    finally:
        recorder.close()


def votes_of(job: RunDirectory) -> list[Vote]:
    events = EventReader(job).read(max_steps=1_000_000).events
    return [Vote.from_record(vote) for event in events if event["kind"] == VOTES_EVENT for vote in event["votes"]]
