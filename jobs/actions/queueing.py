"""Queueing a job of any kind: its checks, its folder, its entries in the journal; nothing is left of one that fails."""

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from exgrpo.jobs.actions.evaluations import refuse_key, resolve_evaluation
from exgrpo.jobs.actions.preflight.local_sources import with_model_source
from exgrpo.jobs.actions.preflight.resolution import Checked, Preflight, complete, resolve
from exgrpo.jobs.evaluation.model_folder import keep_model, link_model
from exgrpo.jobs.runs.checkpoints import start_folder
from exgrpo.jobs.runs.directory import CommandError, RunDirectory, RunDirectoryError
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.people import Role, needs
from exgrpo.jobs.specs.any_job import JobSpec
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.judging import API_KEY_VARIABLE, JudgeSpec
from exgrpo.jobs.specs.train import MAX_NAME_CHARACTERS, ORACLE_SOURCES, SpecError, TrainSpec, is_in_names
from exgrpo_core.durable_files import explain
from exgrpo_core.experience_management.storage.append_file import BufferCorruptionError

_UNNAMED = {"evaluation", "judge"}


@needs(Role.OPERATOR)
def queue_job(runs_root: Path, spec: JobSpec, *, parent_run_id: str | None = None) -> str:
    """Check a job of any kind, write its folder, queue it and return its id; `parent_run_id` is what it is copied from.

    The model of a checkpoint, by `RUN@STEP`, is copied into the new folder, which then does not need the checkpoint.

    Raises:
        SpecError: It names a file, model or benchmark that does not exist, or the oracle does not know the task.
        RunDirectoryError: There is no such run to judge.
        CommandError: The job could not run, or the runs root cannot be written.
    """
    if isinstance(spec, EvalSpec):
        return queue_checked(runs_root, resolve_evaluation(spec, runs_root))
    if isinstance(spec, TrainSpec):
        return queue_checked(runs_root, resolve(spec, runs_root), parent_run_id=parent_run_id)
    if isinstance(spec, JudgeSpec):
        return write_job(runs_root, _name_judge(runs_root, _checked_judge(runs_root, spec)))
    raise CommandError(f"kind: expected train, eval or judge, got {spec.kind}, which no worker can run.")


@needs(Role.OPERATOR)
def queue_checked(
    runs_root: Path, preflight: Preflight | Checked[EvalSpec], *, parent_run_id: str | None = None
) -> str:
    """Queue a job that was checked just now, training after the checks that take seconds, and return its id.

    Raises:
        CommandError: The job could not run, or the runs root cannot be written.
    """
    if not isinstance(preflight, Preflight):
        preflight.raise_refusals()
        return _write_evaluation(runs_root, _name_evaluation(runs_root, preflight.spec))
    complete(preflight, runs_root).raise_refusals()
    spec, start = preflight.spec, preflight.start
    if start is None:
        return write_job(runs_root, spec, parent_run_id)
    spec = with_model_source(spec, start.target)
    link = partial(link_model, start.policy)
    return write_job(runs_root, spec, start.run_id, fill=lambda run: link(start_folder(run, start.target)))


def write_job(
    runs_root: Path,
    spec: JobSpec,
    parent_run_id: str | None = None,
    branched_from_step: int | None = None,
    fill: Callable[[RunDirectory], None] | None = None,
) -> str:
    """Write the folder of a checked job, queue its first attempt and return its id; nothing is left if that fails.

    `fill` puts into the folder what the job starts from.

    Raises:
        CommandError: The runs root cannot be written, or what the job starts from cannot be read.
    """
    run = None
    try:
        runs_root.mkdir(parents=True, exist_ok=True)
        run = RunDirectory.create(runs_root, spec, parent_run_id=parent_run_id, branched_from_step=branched_from_step)
        if fill is not None:
            fill(run)
        Journal(runs_root).append(JournalKind.SUBMITTED, run.run_id, attempt=1)
        run.request_attempt(1)
    except (OSError, BufferCorruptionError, RunDirectoryError) as error:
        if run is not None:
            shutil.rmtree(run.path, ignore_errors=True)
        why = explain(error)
        raise CommandError(f"{runs_root}: the job cannot be written ({why}); nothing is queued.") from None
    return run.run_id


def _write_evaluation(runs_root: Path, spec: EvalSpec) -> str:
    policy, model = Path(spec.model.source), spec.model
    if model.run_id is not None:
        named = model.model_copy(update={"source": f"{model.run_id}@{model.step}"})
        spec = spec.model_copy(update={"model": named})
    if spec.waits_for is not None or spec.server is not None or model.run_id is None:
        return write_job(runs_root, spec, spec.waits_for)
    return write_job(runs_root, spec, model.run_id, fill=partial(keep_model, policy))


def _checked_judge(runs_root: Path, spec: JudgeSpec) -> JudgeSpec:
    if spec.server is not None:
        refuse_key(spec.server.address, API_KEY_VARIABLE)
    if spec.judged.file is not None:
        if not spec.judged.file.is_file():
            raise SpecError(f"{spec.judged.file} does not exist; give a file of JSON lines.", "judged.file")
        # The worker runs in another folder.
        judged = spec.judged.model_copy(update={"file": spec.judged.file.resolve()})
        spec = spec.model_copy(update={"judged": judged})
    if spec.judged.run_id is not None:
        trained = RunDirectory.open(runs_root, spec.judged.run_id).spec()
        if spec.judge == "oracle" and trained.data.source not in ORACLE_SOURCES:
            raise SpecError(
                f"expected server, since {spec.judged.run_id} trains on {trained.data.source} and the oracle "
                "knows the built-in tasks only; give the address of a judge's server (docs/judging.md).",
                "judge",
            )
    return spec


def _name_evaluation(runs_root: Path, spec: EvalSpec) -> EvalSpec:
    """Return the evaluation named after model and benchmarks, such as `score arc step 100 on math500 + aime24`."""
    if spec.name not in _UNNAMED:
        return spec
    model = Path(spec.model.source).name
    if spec.model.run_id is not None:
        model = f"{_run_name(runs_root, spec.model.run_id)} step {spec.model.step}"
    benchmarks = " + ".join(choice.name for choice in spec.benchmarks)
    return spec.model_copy(update={"name": _allowed(f"score {model} on {benchmarks}")})


def _name_judge(runs_root: Path, spec: JudgeSpec) -> JudgeSpec:
    """Return the judge named after who judges what, such as `judge arc by the oracle`."""
    if spec.name not in _UNNAMED:
        return spec
    judged = spec.judged
    target = judged.file.name if judged.file is not None else _run_name(runs_root, judged.run_id or "")
    judge = "the oracle" if spec.server is None else spec.server.model
    return spec.model_copy(update={"name": _allowed(f"judge {target} by {judge}")})


def _run_name(runs_root: Path, run_id: str) -> str:
    try:
        return str(RunDirectory.open(runs_root, run_id).read_run_info()["name"])
    except (RunDirectoryError, KeyError):
        return run_id


def _allowed(name: str) -> str:
    allowed = (character if is_in_names(character) else "-" for character in name)
    return "".join(allowed)[:MAX_NAME_CHARACTERS].rstrip()
