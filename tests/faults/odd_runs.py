"""Runs that recorded what no run should: numbers that are none, huge ones, characters that databases refuse."""

import math
from pathlib import Path

import numpy as np

from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question
from jobs.recording.file_recorder import FileRecorder
from jobs.recording.recorder import EvaluationRecord
from jobs.runs.control import RunStatus
from jobs.runs.directory import RunDirectory
from jobs.specs.train import RecordingSpec, TrainSpec
from tests.step_reports import make_questions, make_report

ODD_NUMBERS = (math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, float(2**63))
ODD_TEXT = "nul \x00, half a pair \ud800, bidi \u202e, line \u2028, bell \x07"
NUM_STEPS = len(ODD_NUMBERS)


def odd_questions() -> list[Question]:
    questions = make_questions()
    questions[0].metadata["score"] = math.nan
    questions[1].metadata["bounds"] = [-math.inf, math.inf, {"deep": math.nan}]
    questions[2].metadata["count"] = 10**30
    questions[3].metadata[ODD_TEXT[:6]] = ODD_TEXT
    return questions


def odd_report(step: int) -> StepReport:
    """Return a report in which every number that an engine or grader gives is an odd one."""
    number = ODD_NUMBERS[(step - 1) % len(ODD_NUMBERS)]
    report = make_report(step)
    report.metrics.update(dict.fromkeys(report.metrics, number))
    report.notices.append(ODD_TEXT)
    with np.errstate(over="ignore"):
        short = np.float32(number)
    for group in report.groups:
        group.advantages[:] = short
        for trajectory in group.trajectories:
            trajectory.reward = number if math.isfinite(number) else 0.0
            trajectory.text = ODD_TEXT
            trajectory.log_probs[:] = short
            trajectory.entropies[:] = short
    for selection in report.selections:
        for values in (selection.entropies, selection.nlls, selection.scores):
            values[:] = short
    return report


def record_odd_run(runs_root: Path) -> RunDirectory:
    """Record one attempt of odd steps and evaluations."""
    run = RunDirectory.create(runs_root, TrainSpec(name="odd", num_steps=NUM_STEPS))
    recorder = FileRecorder(run, run.claim_attempt(), RecordingSpec())
    recorder.status(RunStatus.RUNNING)
    recorder.questions(odd_questions(), "training")
    for step in range(1, NUM_STEPS + 1):
        recorder.step(odd_report(step))
        number = ODD_NUMBERS[step - 1]
        recorder.evaluation(EvaluationRecord(step, "held_out", [ODD_TEXT, "b"], [0, 1], 8, number, number))
        folder = run.checkpoints_path / f"step-{step:08d}"
        folder.mkdir()
        recorder.checkpoint(step, folder)
    recorder.status(RunStatus.FAILED, ODD_TEXT)
    recorder.close()
    return run
