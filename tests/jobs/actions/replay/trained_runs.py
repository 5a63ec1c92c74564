"""Runs of tiny models that the embedded engine trained, and the same runs recorded with one step changed."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import load_preset
from exgrpo.jobs.training.composition import run_training
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import StepReport
from tests.faults.small_training import StepControl

SIZES = (
    "algorithm.batch_size=8", "algorithm.mini_batch_size=4", "algorithm.rollouts_per_question=4", "num_steps=5",
    "algorithm.start_pass_rate=0.05", "data.num_questions=32", "data.num_held_out=0", "validation.interval=null",
    "checkpoint_interval=1", "num_checkpoints_kept=50", "recording.token_data=all", "model.device=cpu",
)  # fmt: skip


def trained(root, *settings, stops=(), run_id="trained", recorder_class=FileRecorder):
    run = RunDirectory.create(root, apply_settings(load_preset("chains-exgrpo"), [*SIZES, *settings]), run_id=run_id)
    for attempt, last in enumerate([*stops, None], start=1):
        run.attempt_path(attempt).mkdir(parents=True)
        recorder = recorder_class(run, attempt, run.spec().recording)
        status = run_training(run.spec(), run, recorder, StepControl(last))
        recorder.close()
        write_outcome(run.attempt_path(attempt), status, "")
    return run


class Kept:
    """Records a run and keeps its questions and steps, which `again` records with one step changed."""

    def __init__(self, root: Path, *settings: str) -> None:
        kept = self

        class Keeping(FileRecorder):
            def questions(self, *given: Any) -> None:
                kept.asked.append(given)
                super().questions(*given)

            def step(self, report: StepReport) -> None:
                kept.reports.append(report)
                super().step(report)

        self.asked: list[Sequence[Any]] = []
        self.reports: list[StepReport] = []
        self.spec = trained(root, *settings, run_id="true", recorder_class=Keeping).spec()

    def again(self, root: Path, step: int, change: Callable[[StepReport], None], run_id: str = "changed") -> None:
        run = RunDirectory.create(root, self.spec, run_id=run_id)
        run.attempt_path(1).mkdir(parents=True)
        recorder = FileRecorder(run, 1, self.spec.recording)
        recorder.status(RunStatus.RUNNING)
        for given in self.asked:
            recorder.questions(*given)
        for report in self.reports:
            if report.step == step:
                report = deepcopy(report)
                change(report)
            recorder.step(report)
        recorder.close()
        write_outcome(run.attempt_path(1), RunStatus.FINISHED, "")
