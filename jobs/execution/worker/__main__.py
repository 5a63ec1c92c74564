"""One attempt's process: takes the lock, sends heartbeats, builds recorder and loop, and writes the outcome.

Started as `python -m exgrpo.jobs.execution.worker RUN_DIRECTORY ATTEMPT`. An error becomes the status `failed` with one
sentence; the traceback is in `log.txt`, the output of this process.
"""

import errno
import logging
import os
import resource
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from exgrpo.jobs.actions.preflight.local_sources import with_model_source
from exgrpo.jobs.actions.preflight.looks import look_at
from exgrpo.jobs.actions.preflight.machine_fit import check_machine
from exgrpo.jobs.evaluation.model_folder import find_shards, keep_model, link_model, merge_shards
from exgrpo.jobs.execution.worker.control import WorkerControl
from exgrpo.jobs.execution.worker.system_metrics import SystemSampler
from exgrpo.jobs.runs.attempts import read_outcome, write_outcome
from exgrpo.jobs.runs.checkpoints import kept_start, remove_unfinished, start_folder
from exgrpo.jobs.runs.control import INTERRUPTED, Control, StoppedBeforeStartError, TrainingError
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.lookup import NamedCheckpoint, find_checkpoint
from exgrpo.jobs.runs.processes import peak_memory
from exgrpo.jobs.runs.recording.event_reader import refusal_of_new_start
from exgrpo.jobs.runs.recording.loggers import open_recorder
from exgrpo.jobs.specs.any_job import JobSpec, loop_name
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.threads import limit_threads
from exgrpo_core.durable_files import cause_of, is_disk_full, what_to_free
from exgrpo_core.errors import UserError
from exgrpo_core.process_memory import gc_paused, keep_freed_memory
from exgrpo_core.process_setup import keep_private, log_in_utc, settle_user
from exgrpo_core.recording.attempt_gate import (
    EXIT_NOT_MINE,
    LOCK_FILE,
    FileLock,
    clear_attempt,
    reserve_outcome,
    set_attempt,
)
from exgrpo_core.recording.recorder import RunRecorder
from exgrpo_core.recording.run_status import RunStatus

logger = logging.getLogger("exgrpo.jobs.execution.worker")

EXIT_FAILED = 1
_FIELDS_OF_MEMORY = ("algorithm.mini_batch_size", "algorithm.max_response_tokens", "model.source")
_LOCK_TIMEOUT_SECONDS = 2.0
MAX_OPEN_FILES = 65_536

JobLoop = Callable[[Any, RunDirectory, RunRecorder, Control], RunStatus]
"""Runs or resumes a job of one kind and returns how it ended: `finished` or `stopped`."""


def load_embedded_loop() -> JobLoop:
    """Return a loop of the embedded engine, with torch limited to the number of threads that the user allows."""
    limit_threads()
    keep_freed_memory()
    from transformers.utils import logging as transformers_logging

    from exgrpo.jobs.evaluation.benchmark_questions import read_validation_questions
    from exgrpo.jobs.training.composition import run_training

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    return partial(run_training, read_benchmarks=read_validation_questions)


def load_evaluation_loop() -> JobLoop:
    """Return the loop of an evaluation."""
    limit_threads()
    from exgrpo.jobs.evaluation.evaluation_loop import run_evaluation

    return run_evaluation


def load_verl_loop() -> JobLoop:
    """Return the loop of the verl engine, for an interpreter of verl's environment."""
    from exgrpo.jobs.evaluation.benchmark_questions import read_validation_questions
    from exgrpo.jobs.training.verl_composition import run_training

    def refuse_or_run(spec: TrainSpec, run: RunDirectory, recorder: RunRecorder, control: Control) -> RunStatus:
        check_machine(look_at(spec))  # before Ray starts
        return run_training(spec, run, recorder, control, read_benchmarks=read_validation_questions)

    return refuse_or_run


def load_judge_loop() -> JobLoop:
    """Return the loop of a judge, which needs no engine."""
    from exgrpo.jobs.evaluation.judging.judge_loop import run_judging

    return run_judging


LOOP_LOADERS: dict[str, Callable[[], JobLoop]] = {
    "embedded": load_embedded_loop,
    "verl": load_verl_loop,
    "eval": load_evaluation_loop,
    "eval vllm": load_evaluation_loop,
    "judge": load_judge_loop,
}
"""What loads a job's loop, by `exgrpo.jobs.specs.any_job.loop_name`: a training run's engine or another job's kind."""


def main(arguments: list[str], loaders: dict[str, Callable[[], JobLoop]] = LOOP_LOADERS) -> int:
    """Run one attempt and return the exit code: 0 for an expected end, 1 for a failure, 3 if another worker has it."""
    log_in_utc()
    keep_private()
    settle_user()
    run, attempt = RunDirectory(Path(arguments[0])), int(arguments[1])
    attempt_path = run.attempt_path(attempt)
    lock = FileLock(attempt_path / LOCK_FILE)
    if not lock.acquire(_LOCK_TIMEOUT_SECONDS) or read_outcome(attempt_path) is not None:
        logger.error("Attempt %d of %s has a worker already or is over; this one exits.", attempt, run.run_id)
        return EXIT_NOT_MINE
    allow_open_files()
    reserve_outcome(attempt_path)
    set_attempt(attempt_path)
    control = WorkerControl(run, attempt_path)
    system = SystemSampler()
    try:
        return _run_attempt(run, attempt, control, loaders, system)
    finally:
        system.end()
        control.end()
        lock.release()


def _run_attempt(
    run: RunDirectory,
    attempt: int,
    control: WorkerControl,
    loaders: dict[str, Callable[[], JobLoop]],
    system: SystemSampler,
) -> int:
    logger.info("Attempt %d of %s starts.", attempt, run.run_id)
    status, reason = RunStatus.FAILED, ""
    fields: tuple[str, ...] = ()
    recorder: RunRecorder | None = None
    try:
        control.start()
        system.start()
        remove_unfinished(run.checkpoints_path)
        spec = run.job_spec()
        if why := refusal_of_new_start(run):
            raise TrainingError(why)
        recorder = open_recorder(run, attempt, spec, system.take)
        recorder.status(RunStatus.STARTING)
        with gc_paused():
            loop = loaders[loop_name(spec)]()
        control.enter(RunStatus.RUNNING)
        recorder.status(RunStatus.RUNNING)
        status = loop(with_kept_model(spec, run), run, recorder, control)
    except StoppedBeforeStartError:
        status = RunStatus.STOPPED
    except Exception as error:
        logger.exception("Attempt %d of %s failed.", attempt, run.run_id)
        status, reason, fields = RunStatus.FAILED, error_message(error), wrong_fields(error)
    if status is RunStatus.STOPPED and run.is_interrupted():
        reason = INTERRUPTED
    status, reason = _record_end(recorder, status, reason)
    clear_attempt()  # from here on a newer attempt must not end this process before it writes its outcome
    write_outcome(run.attempt_path(attempt), status, reason, fields=fields)
    logger.info("Peak memory of this process: %.2f GB.", peak_memory() / 1e9)
    logger.info("Attempt %d of %s: %s. %s", attempt, run.run_id, status, reason)
    return EXIT_FAILED if status is RunStatus.FAILED else 0


def error_message(error: BaseException) -> str:
    """Return one sentence on why the run failed whose folder is this process's."""
    if _is_out_of_memory(error):
        return "Memory ran out; choose a smaller batch, model or max_response_tokens."
    if isinstance(error, UserError):
        return _first_line(error)
    if is_disk_full(error):
        why = cause_of(error)
        return f"{why[0].upper()}{why[1:]}; {what_to_free(error)} and resume the run."
    return f"{type(error).__name__}: {_first_line(error)} The whole traceback is in log.txt."


def wrong_fields(error: BaseException | None) -> tuple[str, ...]:
    """Return the fields of the specification to change, as the error or what caused it names them."""
    if _is_out_of_memory(error):
        return _FIELDS_OF_MEMORY
    while error is not None:
        if fields := getattr(error, "fields", ()):
            return tuple(fields)
        error = error.__cause__
    return ()


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Return whether memory ran out in the error or in what caused it, of verl in another process."""
    while error is not None:
        if isinstance(error, MemoryError) or "OutOfMemoryError" in type(error).__name__:
            return True
        if os.strerror(errno.ENOMEM) in str(error):  # torch has no type for memory of the CPU
            return True
        error = error.__cause__
    return False


def _record_end(recorder: RunRecorder | None, status: RunStatus, reason: str) -> tuple[RunStatus, str]:
    if recorder is None:
        return status, reason
    try:
        recorder.settle()
    except Exception as error:
        logger.exception("The last step cannot be recorded.")
        status, reason = RunStatus.FAILED, (status is RunStatus.FAILED and reason) or error_message(error)
    try:
        recorder.status(status, reason)
        recorder.close()
    except Exception as error:
        logger.exception("The record of the run cannot be written.")
        return RunStatus.FAILED, (status is RunStatus.FAILED and reason) or error_message(error)
    return status, reason


def allow_open_files() -> None:
    """Raise the limit of open files towards `MAX_OPEN_FILES`: every sealed segment of the replay buffer needs three."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _first_line(error: BaseException) -> str:
    line = str(error).strip().partition("\n")[0].rstrip() or "no message."
    return line if line.endswith((".", "!", "?")) else f"{line}."


def with_kept_model(spec: JobSpec, run: RunDirectory) -> JobSpec:
    """Return the specification with the run's copy of the checkpoint that it begins with, made now of a job before it.

    Raises:
        TrainingError: There is no such run or checkpoint, it is damaged, or its shards cannot be merged.
    """
    if not isinstance(spec, TrainSpec | EvalSpec):
        return spec
    source = spec.model.source
    is_awaited = source.startswith(f"{spec.waits_for}@")
    if isinstance(spec, EvalSpec):
        if is_awaited and not run.keeps_model:
            keep_model(_find_awaited(run.path.parent, source).policy, run)
        return spec
    folder = kept_start(run, source)
    if folder is None and is_awaited:
        checkpoint = _find_awaited(run.path.parent, source)
        logger.info("Starts from %s.", checkpoint.policy)
        folder = start_folder(run, checkpoint.target)
        _keep_for_training(checkpoint.policy, folder)
    return spec if folder is None else with_model_source(spec, str(folder.resolve()))


def _find_awaited(runs_root: Path, source: str) -> NamedCheckpoint:
    try:
        checkpoint = find_checkpoint(runs_root, source)
    except CommandError as error:
        raise TrainingError(str(error), "model.source") from None
    assert checkpoint is not None, "it names a run's checkpoint"
    return checkpoint


def _keep_for_training(policy: Path, folder: Path) -> None:
    shards = find_shards(policy)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if shards is not None:
        merge_shards(shards, folder)
        return
    if not (policy / "config.json").is_file():
        raise TrainingError(f"{policy} holds no model.", "model.source")
    link_model(policy, folder)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
