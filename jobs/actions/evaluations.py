"""Queueing an evaluation: of a checkpoint, whose model is kept, or of any model."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from jobs.actions.run_actions import submit
from jobs.evaluation.model_folder import keep_model
from jobs.evaluation.protocols import find_protocol
from jobs.preflight.hub_names import refuse_unknown
from jobs.preflight.local_sources import resolve_source, with_absolute_benchmarks
from jobs.runs.checkpoint_names import find_checkpoint
from jobs.runs.directory import RunDirectory
from jobs.runs.journal import Journal, JournalKind
from jobs.runs.lookup import CommandError
from jobs.specs.evaluation import EvalModelSpec, EvalSpec, parse_eval_spec


def resolve_target(runs_root: Path, target: str) -> EvalModelSpec:
    """Return the model that `RUN@STEP`, `RUN@last`, a model's folder or a hub name means.

    Raises:
        CommandError: There is no such run or checkpoint, or it is damaged.
        SpecError: A folder is not there.
    """
    checkpoint = find_checkpoint(runs_root, target)
    if checkpoint is None:
        return EvalModelSpec(source=resolve_source("model", target))
    return EvalModelSpec(source=str(checkpoint.policy), run_id=checkpoint.run_id, step=checkpoint.step)


def plan_evaluation(runs_root: Path, target: str, content: Mapping[str, object], origin: str) -> EvalSpec:
    """Return the evaluation of `target` (as in `resolve_target`) that `content`, its other fields, asks for.

    Raises:
        CommandError: There is no such run or checkpoint, or it is damaged.
        SpecError: A field from `origin` is wrong.
    """
    model = resolve_target(runs_root, target)
    return parse_eval_spec({**content, "model": model.model_dump()}, origin)


def submit_evaluation(runs_root: Path, spec: EvalSpec) -> str:
    """Write a new run directory with the checkpoint's model in it, queue the evaluation and return its id.

    Raises:
        SpecError: A benchmark is unknown, its file is not there, or the hub knows no such model or data set.
        CommandError: The runs root cannot be written, or the checkpoint holds no model.
    """
    for choice in spec.benchmarks:
        find_protocol(choice.name)
    spec = with_absolute_benchmarks(spec)
    _refuse_unknown_names(spec)
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


def _refuse_unknown_names(spec: EvalSpec) -> None:
    if spec.server is None:
        refuse_unknown("model", spec.model.source, spec.model.revision)
    for choice in spec.benchmarks:
        if choice.source is not None:
            refuse_unknown(f"benchmarks.{choice.name}.source", choice.source, kind="dataset")
