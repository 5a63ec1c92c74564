"""The model of a job that waited for another one: taken from that one's checkpoint when it starts."""

import logging
from pathlib import Path

from jobs.evaluation.model_folder import MODEL_FOLDER, SHARDS_FOLDER, find_shards, keep_model, link_model, merge_shards
from jobs.preflight.local_sources import with_model_source
from jobs.runs.checkpoints import checkpoint_path, find_fault, list_steps
from jobs.runs.control import TrainingError
from jobs.runs.directory import RunDirectory, RunDirectoryError
from jobs.specs.any_job import JobSpec
from jobs.specs.evaluation import EvalSpec
from jobs.specs.train import TrainSpec

logger = logging.getLogger(__name__)


def with_predecessor_model(spec: JobSpec, run: RunDirectory) -> JobSpec:
    """Return the specification with the model of the checkpoint that its predecessor left, kept in the run's folder.

    Raises:
        TrainingError: There is no such run or checkpoint, it is damaged, or its shards cannot be merged.
    """
    if not isinstance(spec, TrainSpec | EvalSpec) or not spec.model.source.startswith(f"{spec.waits_for}@"):
        return spec
    checkpoint = _find_checkpoint(run.path.parent, *spec.model.source.rsplit("@", 1))
    if isinstance(spec, EvalSpec):
        if not (run.path / MODEL_FOLDER).is_dir() and not (run.path / SHARDS_FOLDER).is_dir():
            keep_model(checkpoint / "policy", run.path)
        return spec
    folder = run.path / MODEL_FOLDER / checkpoint.parent.parent.name / checkpoint.name
    if not folder.is_dir():
        logger.info("Starts from %s.", checkpoint)
        _keep_for_training(checkpoint / "policy", folder)
    return with_model_source(spec, str(folder))


def _find_checkpoint(runs_root: Path, run_id: str, step: str) -> Path:
    try:
        checkpoints = RunDirectory.open(runs_root, run_id).checkpoints_path
    except RunDirectoryError as error:
        raise TrainingError(f"model.source: {error}") from None
    steps = list_steps(checkpoints)
    wanted = int(step) if step.isdecimal() else max(steps, default=0)
    path = checkpoint_path(checkpoints, wanted)
    fault = "it is not there" if wanted not in steps else find_fault(path)
    if fault is not None:
        raise TrainingError(f"model.source: the checkpoint of {run_id} at step {wanted} cannot be used: {fault}.")
    return path


def _keep_for_training(policy: Path, folder: Path) -> None:
    """Give a run's folder a checkpoint's model."""
    shards = find_shards(policy)
    folder.parent.mkdir(parents=True, exist_ok=True)
    if shards is not None:
        merge_shards(shards, folder)
        return
    if not (policy / "config.json").is_file():
        raise TrainingError(f"model.source: {policy} holds no model.")
    link_model(policy, folder)
