"""Answers of a model to one prompt: `exgrpo chat`."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from exgrpo.jobs.actions.preflight.local_sources import resolve_source
from exgrpo.jobs.evaluation.model_folder import find_shards
from exgrpo.jobs.runs.checkpoints import kept_start
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.lookup import find_checkpoint, find_run_id
from exgrpo.jobs.specs.train import CHAINS_WARM_MODEL, TrainSpec
from exgrpo.jobs.training.engines.embedded.first_look import open_model
from exgrpo.jobs.training.engines.embedded.model import decode_texts, generate
from exgrpo.jobs.training.engines.embedded.sampling import Sampler
from exgrpo.jobs.training.pretrained.conversion import prepare_model
from exgrpo.jobs.training.run_data import open_data
from exgrpo.jobs.training.templates import TemplateName, encode_messages
from exgrpo_core.errors import InputError

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
        run = RunDirectory.open(runs_root, find_run_id(runs_root, run_text))
        return _start_of(runs_root, run, _spec_of(run))
    checkpoint = find_checkpoint(runs_root, target)
    if checkpoint is None:
        return ChatModel(resolve_source("model", target))
    if find_shards(checkpoint.policy) is not None:
        raise CommandError(
            f"{target} has verl's sharded format; write it as a model with `exgrpo export {target} FOLDER`, and "
            "name FOLDER instead."
        )
    return _sampled_as(_spec_of(RunDirectory.open(runs_root, checkpoint.run_id)), str(checkpoint.policy))


def _start_of(runs_root: Path, run: RunDirectory, spec: TrainSpec) -> ChatModel:
    source = str(kept_start(run, spec.model.source) or spec.model.source)
    if spec.waits_for is not None and source.startswith(f"{spec.waits_for}@"):
        return _sampled_as(spec, find_model(runs_root, source).source)
    if Path(source).is_absolute() and not Path(source).exists():
        raise CommandError(f"{run.run_id}@{START}: the model that it began with is gone; put it back at {source}.")
    if source == CHAINS_WARM_MODEL:
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


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """What is asked; None is as in the model's run."""

    prompt: str
    num_samples: int = 1
    temperature: float | None = None
    max_response_tokens: int | None = None
    seed: int = 0


def answer(model: ChatModel, request: ChatRequest) -> Iterator[dict[str, object]]:
    """Yield the whole prompt as the model gets it, then each answer, as records for JSON.

    The model is loaded here and is freed when the last answer was given.

    Raises:
        EngineError: The model cannot be loaded.
        ModelSourceError: A GGUF file cannot be downloaded or converted.
        InputError: The prompt is empty or too long, or the tokenizer refuses it.
    """
    if request.prompt != request.prompt.encode(errors="ignore").decode():
        raise InputError("prompt: holds half of a character; remove it.")
    policy = open_model(prepare_model(model.source), "auto", model.revision)
    limit = request.max_response_tokens or model.max_response_tokens
    try:
        messages = [{"role": "user", "content": request.prompt}]
        text, ids = encode_messages(TemplateName(model.template), messages, policy.tokenizer)
    except ValueError as error:
        raise InputError(f"prompt: {error}") from error
    context = policy.limit_after(len(ids))
    if not ids or (context is not None and len(ids) + limit > context):
        raise InputError(
            f"prompt: expected tokens that fit with {limit} of the answer into the model's context of {context}, got "
            f"{len(ids)}; change the prompt or lower the answer's length."
        )
    yield {"prompt": text, "num_prompt_tokens": len(ids)}
    temperature = model.temperature if request.temperature is None else request.temperature
    sampler = Sampler(temperature, torch.Generator(policy.device).manual_seed(request.seed))
    prompts = [np.asarray(ids, dtype=np.int32)] * request.num_samples
    for number, response in enumerate(generate(policy, prompts, limit, sampler), start=1):
        yield {
            "sample": number,
            "text": decode_texts(policy, [response])[0],
            "is_truncated": response.is_truncated,
            "num_tokens": response.token_ids.size,
            "mean_entropy": float(response.entropies.mean()),
        }
