"""Queueing an evaluation: of a checkpoint, whose model is kept, or of any model."""

import shutil
from pathlib import Path

from jobs.commands import CommandError, open_run, submit
from jobs.eval_specs import EvalModelSpec, EvalSpec
from jobs.evaluation.model_folder import keep_model
from jobs.evaluation.protocols import find_protocol
from jobs.journal import Journal, JournalKind
from jobs.run_directory import RunDirectory
from jobs.run_lookup import find_run_id
from jobs.training.checkpoint import checkpoint_path, find_fault, list_checkpoints

NEWEST = "last"


def resolve_target(runs_root: Path, target: str) -> EvalModelSpec:
    """Return the model that `RUN@STEP`, `RUN@last`, a model's folder or a hub name means.

    Raises:
        CommandError: There is no such run or checkpoint, or it is damaged.
    """
    run_text, at, step_text = target.rpartition("@")
    if not at or Path(target).exists():
        source = str(Path(target).resolve()) if Path(target).exists() else target
        return EvalModelSpec(source=source)
    run = open_run(runs_root, find_run_id(runs_root, run_text))
    steps = sorted(int(path.name.rpartition("-")[2]) for path in list_checkpoints(run.checkpoints_path))
    wanted = steps[-1] if step_text == NEWEST and steps else int(step_text) if step_text.isdecimal() else None
    if wanted not in steps:
        there = ", ".join(map(str, steps)) or "none"
        raise CommandError(f"{target}: {run.run_id} has no checkpoint at step {step_text}; there are: {there}.")
    path = checkpoint_path(run.checkpoints_path, wanted)
    fault = find_fault(path)
    if fault is not None:
        raise CommandError(f"{target}: {fault}; choose another step.")
    return EvalModelSpec(source=str(path / "policy"), run_id=run.run_id, step=wanted)


def submit_evaluation(runs_root: Path, spec: EvalSpec) -> str:
    """Write a new run directory with the checkpoint's model in it, queue the evaluation and return its id.

    Raises:
        SpecError: A benchmark is unknown.
        CommandError: The runs root cannot be written, or the checkpoint holds no model.
    """
    for choice in spec.benchmarks:
        find_protocol(choice.name)
    spec = _with_absolute_sources(spec)
    if spec.model.run_id is None or spec.server is not None:
        return submit(runs_root, spec)
    try:
        run = RunDirectory.create(runs_root, spec, parent_run_id=spec.model.run_id)
        try:
            keep_model(Path(spec.model.source), run.path)
        except OSError:
            shutil.rmtree(run.path, ignore_errors=True)
            raise
    except OSError as error:
        raise CommandError(f"{runs_root}: the evaluation cannot be written ({error}).") from None
    journal = Journal(runs_root)
    for name in spec.tags:
        journal.append(JournalKind.TAGGED, run.run_id, tag=name)
    journal.append(JournalKind.SUBMITTED, run.run_id, attempt=1)
    return run.run_id


def _with_absolute_sources(spec: EvalSpec) -> EvalSpec:
    """Return `spec` with local files named absolutely, since a worker runs in another folder."""
    choices = tuple(
        choice.model_copy(update={"source": str(Path(choice.source).resolve())})
        if choice.source is not None and Path(choice.source).exists()
        else choice
        for choice in spec.benchmarks
    )
    return spec.model_copy(update={"benchmarks": choices})
