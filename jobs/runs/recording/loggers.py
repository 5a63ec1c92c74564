"""Loggers besides the run directory: TensorBoard, W&B and MLflow.

They receive metrics and scores. A logger that cannot be opened stops the run before it starts; one that fails later is
removed with a warning, and training continues.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.any_job import JobSpec
from exgrpo.jobs.specs.train import RecordingSpec, SpecError, TrainSpec
from exgrpo_core.recording.recorder import EvaluationRecord, RunRecorder
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question

logger = logging.getLogger(__name__)

TENSORBOARD_FOLDER = "tensorboard"


class MetricLogger(Protocol):
    """Logs numbers by name and step; all calls are from one thread."""

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the values of one step."""
        ...

    def close(self) -> None:
        """Write everything and close."""
        ...


class TensorBoardLogger:
    """Event files in the run directory: `tensorboard --logdir RUNS` shows all runs."""

    def __init__(self, run: RunDirectory, attempt: int, spec: TrainSpec) -> None:  # noqa: ARG002 - all loggers' form
        from torch.utils.tensorboard import SummaryWriter

        folder = run.path / TENSORBOARD_FOLDER / f"attempt-{attempt:04d}"
        self._writer = SummaryWriter(str(folder))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the values of one step."""
        for key, value in values.items():
            self._writer.add_scalar(key, value, step)
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


class WandbLogger:
    """A W&B run named like the run; the account and server are those of the `wandb` settings."""

    def __init__(self, run: RunDirectory, attempt: int, spec: TrainSpec) -> None:
        import wandb

        self._run = wandb.init(
            project="exgrpo-workbench",
            name=spec.name,
            group=run.run_id,
            id=f"{run.run_id}-{attempt}",
            config=spec.model_dump(mode="json"),
            dir=str(run.path),
        )

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the values of one step."""
        self._run.log(dict(values), step=step)

    def close(self) -> None:
        """Send the rest and close."""
        self._run.finish()


class MlflowLogger:
    """An MLflow run; the tracking server is that of `MLFLOW_TRACKING_URI`."""

    def __init__(self, run: RunDirectory, attempt: int, spec: TrainSpec) -> None:
        import mlflow

        self._client = mlflow.tracking.MlflowClient()
        mlflow.set_experiment("exgrpo-workbench")
        started = mlflow.start_run(run_name=spec.name, tags={"run_id": run.run_id, "attempt": str(attempt)})
        self._run_id: str = started.info.run_id

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Write the values of one step."""
        for key, value in values.items():
            self._client.log_metric(self._run_id, key, value, step=step)

    def close(self) -> None:
        """End the MLflow run."""
        self._client.set_terminated(self._run_id)


_LOGGERS: dict[str, Callable[[RunDirectory, int, TrainSpec], MetricLogger]] = {
    "tensorboard": TensorBoardLogger,
    "wandb": WandbLogger,
    "mlflow": MlflowLogger,
}


def _open(name: str, run: RunDirectory, attempt: int, spec: TrainSpec) -> MetricLogger:
    try:
        return _LOGGERS[name](run, attempt, spec)
    except ImportError as error:
        raise SpecError(
            f"{name} is not installed ({error}); install it with `pip install exgrpo-workbench[loggers]` or remove it.",
            "recording.loggers",
        ) from error


class FanOutRecorder:
    """A recorder that also feeds loggers: the recorder's errors are raised, a logger that raises is removed.

    `measure` returns further metrics of a step, such as the machine's.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        loggers: Sequence[MetricLogger],
        measure: Callable[[], Mapping[str, float]] = dict,
    ) -> None:
        self._recorder = recorder
        self._loggers = list(loggers)
        self._measure = measure

    def status(self, status: str, reason: str = "") -> None:
        """Record a change of state."""
        self._recorder.status(status, reason)

    def questions(self, questions: Sequence[Question], question_set: str) -> None:
        """Record a question set."""
        self._recorder.questions(questions, question_set)

    def step(self, report: StepReport) -> None:
        """Record one step and log its metrics, perhaps before the step is on disk."""
        report.metrics.update(self._measure())
        self._recorder.step(report)
        self._each(lambda item: item.log(report.metrics, report.step))

    def settle(self) -> None:
        """Return once every step is on disk."""
        self._recorder.settle()

    def evaluation(self, record: EvaluationRecord) -> None:
        """Record the scores of one evaluation, and log them as `evaluation/<set>_avg_at_n`."""
        self._recorder.evaluation(record)
        values = {f"evaluation/{record.question_set}_avg_at_n": record.avg_at_n}
        self._each(lambda item: item.log(values, record.step))

    def checkpoint(self, step: int, path: Path) -> None:
        """Record that a whole checkpoint is at `path`."""
        self._recorder.checkpoint(step, path)

    def record(self, kind: str, fields: Mapping[str, Any]) -> None:
        """Record an event of another kind than those above."""
        self._recorder.record(kind, fields)

    def close(self) -> None:
        """Close the recorder and all loggers."""
        self._recorder.close()
        self.close_loggers()

    def close_loggers(self) -> None:
        """Close the loggers alone; the recorder is the caller's."""
        self._each(lambda item: item.close())
        self._loggers = []

    def _each(self, action: Callable[[MetricLogger], Any]) -> None:
        for item in [*self._loggers]:
            try:
                action(item)
            except Exception as error:  # noqa: BLE001 - no failure of a logger may end a training run
                self._loggers.remove(item)
                logger.warning("%s failed and is not used any more: %s", type(item).__name__, error)


def open_recorder(
    run: RunDirectory, attempt: int, spec: JobSpec, measure: Callable[[], Mapping[str, float]] = dict
) -> RunRecorder:
    """Return the recorder of an attempt: the run directory, and the loggers that a training run names.

    `measure` returns metrics of the machine for each step.

    Raises:
        SpecError: A logger is not installed.
    """
    from exgrpo_core.recording.file_recorder import FileRecorder

    if not isinstance(spec, TrainSpec):
        return FileRecorder(run, attempt, RecordingSpec())
    recorder = FileRecorder(run, attempt, spec.recording)
    return FanOutRecorder(recorder, [_open(name, run, attempt, spec) for name in spec.recording.loggers], measure)
