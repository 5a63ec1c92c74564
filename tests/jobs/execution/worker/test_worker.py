import errno
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from exgrpo.jobs.actions.evaluations import plan_evaluation_after
from exgrpo.jobs.execution.worker.__main__ import (
    EXIT_FAILED,
    allow_open_files,
    error_message,
    load_embedded_loop,
    main,
    with_kept_model,
    wrong_fields,
)
from exgrpo.jobs.execution.worker.control import WorkerControl
from exgrpo.jobs.machine.hardware import VISIBLE_VARIABLE
from exgrpo.jobs.runs.attempts import read_heartbeat, read_outcome
from exgrpo.jobs.runs.checkpoints import save_checkpoint
from exgrpo.jobs.runs.control import TrainingError
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.recording.event_reader import EventReader
from exgrpo.jobs.specs.train import ModelSpec, SpecError, TrainSpec, load_preset, parse_spec
from exgrpo.jobs.training.pretrained.sources import CACHE_VARIABLE
from exgrpo_core.recording.attempt_gate import EXIT_NOT_MINE, clear_attempt, set_attempt
from exgrpo_core.recording.record_file import RecordFile
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER, toy_spec
from tests.step_reports import make_report


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (TrainingError("data.source: is missing.\nmore"), "data.source: is missing."),
        (SpecError("num_steps: expected at least 1"), "num_steps: expected at least 1."),
        (ValueError("odd"), "ValueError: odd. The whole traceback is in log.txt."),
        (ImportError("\nX needs Y.\nmore"), "ImportError: X needs Y. The whole traceback is in log.txt."),
        (AssertionError(), "AssertionError: no message. The whole traceback is in log.txt."),
        (MemoryError(), "Memory ran out; choose a smaller batch, model or max_response_tokens."),
    ],
)
def test_failure_becomes_one_sentence(error, sentence):
    assert error_message(error) == sentence


def test_memory_that_ran_out_in_another_process_is_told_as_memory():
    error = TrainingError("verl: MemoryError.")
    error.__cause__ = MemoryError()
    assert (error_message(error), wrong_fields(error)) == (error_message(MemoryError()), wrong_fields(MemoryError()))


def test_memory_that_torch_cannot_have_names_the_settings_that_need_less():
    with pytest.raises(RuntimeError) as failure:
        torch.empty(2**55, dtype=torch.uint8)
    assert error_message(failure.value) == error_message(MemoryError())
    assert "algorithm.mini_batch_size" in wrong_fields(failure.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_or_quota_is_told_with_what_would_help(number):
    why = os.strerror(number)
    for error in (OSError(number, why), OSError(number, why, "file"), RuntimeError(f"{why} (os error {number})")):
        assert error_message(error).startswith(why)
        assert error_message(error).endswith("; free some space or inodes and resume the run.")


@pytest.mark.parametrize("value", ["0", "two", "-1"])
def test_wrong_number_of_threads_is_refused_by_name(monkeypatch, value):
    monkeypatch.setenv("EXGRPO_NUM_THREADS", value)
    with pytest.raises(SpecError, match="EXGRPO_NUM_THREADS"):
        load_embedded_loop()


def test_a_worker_may_open_as_many_files_as_its_user():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(256, hard), hard))
        allow_open_files()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (min(hard, 65_536), hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_worker_sends_heartbeats_while_it_cannot_read_whether_it_was_superseded(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path, toy_spec())
    attempt_path = run.attempt_path(run.claim_attempt())
    control = WorkerControl(run, attempt_path)

    def fail(_):
        raise OSError(errno.ESTALE, "Stale file handle")

    set_attempt(attempt_path)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(os, "listdir", fail)
            control.heartbeat(3)
    finally:
        clear_attempt()
    assert read_heartbeat(attempt_path).step == 3


@pytest.mark.slow
def test_a_stop_is_heard_while_the_model_to_start_from_is_made(tmp_path, monkeypatch):
    cache = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    spec = load_preset("chains-exgrpo")
    no_shipped_model = spec.data.model_copy(update={"max_operations": 11})
    run = RunDirectory.create(tmp_path / "runs", spec.model_copy(update={"data": no_shipped_model}))
    run.request_stop()
    command = [sys.executable, "-m", "exgrpo.jobs.execution.worker", str(run.path), str(run.claim_attempt())]
    assert subprocess.run(command, stderr=subprocess.DEVNULL, timeout=120, check=False).returncode == 0
    assert read_outcome(run.attempt_path(1)).status is RunStatus.STOPPED
    assert list(cache.iterdir()) == []


def test_a_run_that_is_resumed_where_gpus_are_missing_says_so_before_ray_starts(tmp_path, monkeypatch):
    run = RunDirectory.create(tmp_path / "runs", parse_spec({"engine": "verl"}, "test"))
    monkeypatch.setenv(VISIBLE_VARIABLE, "")
    assert main([str(run.path), str(run.claim_attempt())]) == EXIT_FAILED
    assert read_outcome(run.attempt_path(1)).fields == ("verl.gpus_per_node",)


def test_a_run_whose_last_step_cannot_be_written_failed_and_says_so_in_its_record(tmp_path, monkeypatch):
    append = RecordFile.append

    def fail_once(*_):
        monkeypatch.setattr(RecordFile, "append", append)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def loop(_spec, _run, recorder, _control):
        monkeypatch.setattr(RecordFile, "append", fail_once)
        recorder.step(make_report(1))
        return RunStatus.FINISHED

    run = RunDirectory.create(tmp_path / "runs", load_preset("chains-exgrpo"))
    assert main([str(run.path), str(run.claim_attempt())], {"embedded": lambda: loop}) == EXIT_FAILED
    outcome = read_outcome(run.attempt_path(1))
    assert outcome.status is RunStatus.FAILED
    assert "No space left" in outcome.reason
    events = EventReader(run).read().events
    assert [event["status"] for event in events] == ["starting", "running", "failed"]
    assert events[-1]["reason"] == outcome.reason


def test_a_worker_removes_what_a_killed_one_left_of_a_checkpoint(tmp_path):
    run = RunDirectory.create(tmp_path / "runs", toy_spec(num_steps=2, checkpoint_interval=1))
    half_saved(run)
    assert toy_exit_code(run, run.claim_attempt()) == 0
    assert sorted(path.name for path in run.checkpoints_path.iterdir()) == ["step-00000001", "step-00000002"]


def test_a_worker_that_starts_after_its_successor_leaves_the_checkpoint_being_saved(tmp_path):
    run = RunDirectory.create(tmp_path / "runs", toy_spec())
    run.claim_attempt()
    run.claim_attempt()
    model = half_saved(run)
    assert toy_exit_code(run, attempt=1) == EXIT_NOT_MINE
    assert model.exists()


def half_saved(run: RunDirectory) -> Path:
    model = run.checkpoints_path / ".step-00000007.0a1b2c3d" / "policy" / "model.safetensors"
    model.parent.mkdir(parents=True)
    model.write_bytes(b"half")
    return model


def toy_exit_code(run: RunDirectory, attempt: int) -> int:
    command = [sys.executable, "-m", TOY_WORKER, str(run.path), str(attempt)]
    return subprocess.run(command, stderr=subprocess.DEVNULL, timeout=120, check=False).returncode


@pytest.fixture
def first(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec(num_steps=4))

    def write(checkpoint):
        checkpoint.policy.mkdir()
        (checkpoint.policy / "config.json").write_text("{}")
        (checkpoint.policy / "optimizer.safetensors").write_text("large")

    save_checkpoint(run.checkpoints_path, 4, write)
    return run


def waiting_run(first, step="last"):
    spec = TrainSpec(model=ModelSpec(source=f"{first.run_id}@{step}"), waits_for=first.run_id)
    return spec, RunDirectory.create(first.path.parent, spec, run_id="waiting")


def test_waiting_run_starts_from_the_last_checkpoint_of_its_predecessor_whatever_becomes_of_that(first):
    spec, run = waiting_run(first)
    for _attempt in range(2):
        source = Path(with_kept_model(spec, run).model.source)
        assert source.is_relative_to(run.path)
        assert [path.name for path in source.iterdir()] == ["config.json"]
    assert not list(source.parent.glob(".*"))


def test_missing_checkpoint_is_one_sentence(first):
    spec, run = waiting_run(first, step="3")
    with pytest.raises(TrainingError, match="has no checkpoint at step 3"):
        with_kept_model(spec, run)


def test_waiting_evaluation_scores_the_last_step_and_keeps_its_model(first):
    spec = plan_evaluation_after(first, {"benchmarks": [{"name": "math500"}]}, "test")
    assert (spec.model.step, spec.model.run_id, spec.waits_for) == (4, first.run_id, first.run_id)
    run = RunDirectory.create(first.path.parent, spec, run_id="scores")
    for _attempt in range(2):
        assert with_kept_model(spec, run) == spec
    assert (run.path / "model" / "config.json").is_file()
