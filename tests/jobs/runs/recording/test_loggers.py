import logging
import sys

import pytest

from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.runs.recording.loggers import FanOutRecorder, open_recorder
from exgrpo.jobs.specs.train import RecordingSpec, SpecError, TrainSpec
from exgrpo_core.recording.file_recorder import FileRecorder
from exgrpo_core.recording.recorder import EvaluationRecord
from exgrpo_core.recording.run_status import RunStatus
from tests.step_reports import make_report


def spec_with(*loggers: str) -> TrainSpec:
    return TrainSpec(recording=RecordingSpec(loggers=loggers))


class FailingLogger:
    def __init__(self):
        self.logged = []

    def log(self, values, step):
        if self.logged:
            raise ConnectionError("server is away")
        self.logged.append((step, dict(values)))

    def close(self):
        raise AssertionError("a dropped logger is not closed")


def test_without_loggers_only_the_run_directory_is_written(run):
    recorder = open_recorder(run, run.claim_attempt(), spec_with(), lambda: {"system/gpu_use": 0.5})
    recorder.step(make_report(1))
    recorder.close()
    (event,) = EventReader(run).read().events
    assert event["metrics"] == make_report(1).metrics | {"system/gpu_use": 0.5}
    assert not (run.path / "tensorboard").exists()


# TensorBoard 2.20 uses calls that NumPy and protobuf have declared old.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_holds_what_was_recorded(run):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    recorder = open_recorder(run, run.claim_attempt(), spec_with("tensorboard"))
    recorder.status(RunStatus.RUNNING)
    for step in (1, 2):
        recorder.step(make_report(step))
    recorder.evaluation(EvaluationRecord(2, "held_out", ["a", "b"], [4, 8], 8, 0.6, 1.0))
    recorder.close()
    written = accumulator.EventAccumulator(str(run.path / "tensorboard" / "attempt-0001")).Reload()
    rewards = [(point.step, point.value) for point in written.Scalars("reward/mean")]
    expected = [(step, pytest.approx(make_report(step).metrics["reward/mean"], rel=1e-6)) for step in (1, 2)]
    assert rewards == expected
    assert [(point.step, point.value) for point in written.Scalars("evaluation/held_out_avg_at_n")] == [(2, 0.75)]
    assert [event["kind"] for event in EventReader(run).read().events] == ["status", "step", "step", "evaluation"]


@pytest.mark.parametrize("name", ["wandb", "mlflow", "tensorboard"])
def test_a_logger_that_is_not_installed_stops_the_run(run, monkeypatch, name):
    module = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(SpecError, match=name):
        open_recorder(run, run.claim_attempt(), spec_with(name))


def test_a_logger_that_fails_is_dropped_and_recording_goes_on(run, caplog):
    failing = FailingLogger()
    recorder = FanOutRecorder(FileRecorder(run, run.claim_attempt(), RecordingSpec()), [failing])
    with caplog.at_level(logging.WARNING):
        for step in (1, 2, 3):
            recorder.step(make_report(step))
        recorder.close()
    assert [step for step, _ in failing.logged] == [1]
    assert caplog.text.count("server is away") == 1
    assert [event["step"] for event in EventReader(run).read().events] == [1, 2, 3]
