"""Which model answers, and how its run samples; loads no training engine."""

from dataclasses import dataclass
from pathlib import Path

from jobs.evaluation.model_folder import find_shards
from jobs.preflight.local_sources import resolve_source
from jobs.runs.checkpoint_names import find_checkpoint
from jobs.runs.directory import RunDirectory
from jobs.runs.lookup import CommandError, find_run_id, open_run
from jobs.specs.train import ANSWER_FORMAT_MODEL, CHAINS_WARM_MODEL, TrainSpec
from jobs.training.run_data import open_data
from jobs.training.templates import TemplateName

START = "start"
DEFAULT_RESPONSE_TOKENS = 256


@dataclass(frozen=True, slots=True)
class ChatModel:
    """A model to ask, with the template and the sampling of its run where it has one."""

    source: str
    """Folder or hub name."""
    revision: str | None = None
    template: str = TemplateName.AUTO
    temperature: float = 1.0
    max_response_tokens: int = DEFAULT_RESPONSE_TOKENS
    """The longest answer of the run."""


def find_model(runs_root: Path, target: str) -> ChatModel:
    """Return the model that `RUN@STEP`, `RUN@last`, `RUN@start`, a model's folder or a hub name means.

    Raises:
        CommandError: There is no such run or checkpoint, it is damaged, or its model is in verl's shards.
        SpecError: A folder does not exist.
        DataError: The data from which the run's first model was made cannot be read.
    """
    run_text, at, step = target.rpartition("@")
    if at and step == START:
        run = open_run(runs_root, find_run_id(runs_root, run_text))
        return _start_of(runs_root, run, _spec_of(run))
    checkpoint = find_checkpoint(runs_root, target)
    if checkpoint is None:
        return ChatModel(resolve_source("model", target))
    if find_shards(checkpoint.policy) is not None:
        raise CommandError(
            f"{target} has verl's sharded format; write it as a model with `exgrpo export {target} FOLDER`, and "
            "name FOLDER instead."
        )
    return _sampled_as(_spec_of(open_run(runs_root, checkpoint.run_id)), str(checkpoint.policy))


def _start_of(runs_root: Path, run: RunDirectory, spec: TrainSpec) -> ChatModel:
    source = spec.model.source
    if spec.waits_for is not None and source.startswith(f"{spec.waits_for}@"):
        return _sampled_as(spec, find_model(runs_root, source).source)
    if Path(source).is_absolute() and not Path(source).exists():
        raise CommandError(f"{run.run_id}@{START}: the model that it began with is gone ({source}).")
    if source in {CHAINS_WARM_MODEL, ANSWER_FORMAT_MODEL}:
        source = open_data(spec).model_source
    return _sampled_as(spec, source, spec.model.revision)


def _sampled_as(spec: TrainSpec, source: str, revision: str | None = None) -> ChatModel:
    algorithm = spec.algorithm
    return ChatModel(source, revision, spec.data.template, algorithm.temperature, algorithm.max_response_tokens)


def _spec_of(run: RunDirectory) -> TrainSpec:
    spec = run.job_spec()
    if not isinstance(spec, TrainSpec):
        raise CommandError(f"{run.run_id}: expected a training run, this is a job of kind {spec.kind}.")
    return spec
