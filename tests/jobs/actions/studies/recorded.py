"""Runs of a study as their workers would have recorded them, without training."""

from pathlib import Path

from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, Study, load_study, spec_of
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from exgrpo_core.recording.run_status import RunStatus
from tests.step_reports import make_questions

NUM_QUESTIONS = 10


def record_run(
    runs_root: Path, study: Study, key: RunKey, num_correct: int, end: RunStatus = RunStatus.FINISHED
) -> str:
    """Record a run that gets `num_correct` of 10 held-out questions right in the end, one fewer before."""
    run_id = queue_job(runs_root, spec_of(study, key))
    run = RunDirectory.open(runs_root, run_id)
    attempt = run.claim_attempt()
    recorder = FileRecorder(run, attempt, run.spec().recording)
    recorder.status(RunStatus.RUNNING)
    recorder.questions(make_questions(), "training")
    for step, count in ((0, num_correct - 1), (30, num_correct)):
        correct = [8] * count + [0] * (NUM_QUESTIONS - count)
        names = [str(number) for number in range(NUM_QUESTIONS)]
        recorder.evaluation(EvaluationRecord(step, "held_out", names, correct, 8, 0.6, 1.5))
    recorder.status(end, "")
    recorder.close()
    write_outcome(run.attempt_path(attempt), end, "")
    return run_id


def record_seeds(runs_root: Path, study: str, cell: str, *counts: int, scale: Scale = Scale.CHAINS) -> list[str]:
    keys = [RunKey(study, scale, cell, seed) for seed in range(len(counts))]
    return [record_run(runs_root, load_study(study), key, count) for key, count in zip(keys, counts, strict=True)]
