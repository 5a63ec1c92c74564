"""An engine on disk: a folder of a model, or of its adapters, with optimizer, sampler and counters next to it."""

import json
import shutil
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, PreTrainedModel

from exgrpo.jobs.training.engines.embedded.lora import has_adapters, restore_adapters, save_adapters
from exgrpo.jobs.training.engines.embedded.model import PolicyModel, load_weights
from exgrpo.jobs.training.engines.embedded.update import PolicyOptimizer
from exgrpo.jobs.training.pretrained.model_shapes import model_file
from exgrpo_core.bounded_json import read_json
from exgrpo_core.errors import EngineError, first_line

OPTIMIZER_FILE = "optimizer.safetensors"
SAMPLER_FILE = "sampler.safetensors"
COUNTERS_FILE = "engine.json"
GENERATION_FILE = "generation_config.json"
_PROCESSOR_FILES = ("preprocessor_config.json", "processor_config.json", "video_preprocessor_config.json")
"""How images become what a vision tower reads."""
_NUM_COMPARED = 24
_STRIDE = 7919
"""A prime: the tokens that are compared are from the whole vocabulary."""
_MAX_GAP = 0.02
"""Mean nats a token; the same weights in float32 on a GPU and on a CPU differ by much less."""
_UNSAVED = "cannot be trained: its checkpoint"


def save_engine(directory: Path, policy: PolicyModel, optimizer: PolicyOptimizer, generator: torch.Generator) -> None:
    """Write everything that decides what the engine does next; the folder also loads as a model."""
    directory.mkdir(parents=True, exist_ok=True)
    save_model(directory, policy.model)
    policy.tokenizer.save_pretrained(directory)
    for path in filter(None, (model_file(policy.source, name) for name in _PROCESSOR_FILES)):
        shutil.copyfile(path, directory / path.name)
    save_file(optimizer.state_tensors(), directory / OPTIMIZER_FILE)
    save_file({"state": generator.get_state()}, directory / SAMPLER_FILE)
    counters = {"num_optimizer_steps": optimizer.num_steps}
    (directory / COUNTERS_FILE).write_text(json.dumps(counters) + "\n", encoding="utf-8")


def save_model(directory: Path, model: PreTrainedModel) -> None:
    """Write weights or adapters, the configuration, and the generation settings as the model came with them.

    transformers loads settings that it then refuses to save, such as a temperature without `do_sample`.
    """
    settings = model.generation_config
    model.generation_config = GenerationConfig()  # type: ignore[no-untyped-call] # untyped in transformers
    try:
        if has_adapters(model):
            save_adapters(directory, model)
        else:
            model.save_pretrained(directory)
    finally:
        model.generation_config = settings
    if settings is not None:
        settings.to_json_file(directory / GENERATION_FILE, keys_to_pop=["compile_config"])


def check_saved_model(directory: Path, policy: PolicyModel) -> None:
    """Load a saved model again and compare its log-probs of some tokens with those of the model in memory.

    Adapters have only their own weights in the folder, which are restored by name.

    Raises:
        EngineError: They differ, or the folder cannot be loaded: nothing may continue from it.
    """
    if has_adapters(policy.model):
        return
    ids = torch.arange(_NUM_COMPARED)[None] * _STRIDE % len(policy.tokenizer)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            saved = load_weights(str(directory), dtype=torch.float32, use_safetensors=True).train(mode=False)
            scores = [_next_log_probs(model, ids) for model in (policy.model, saved)]
    except Exception as error:  # the readers of models raise errors of any kind
        raise EngineError(
            f"{policy.source} {_UNSAVED} cannot be loaded again ({first_line(error)}).", "model.source"
        ) from error
    gap = float((scores[0] - scores[1]).abs().mean())
    if not gap <= _MAX_GAP:
        raise EngineError(
            f"{policy.source} {_UNSAVED} is another model (its log-probs differ by {gap:.3g} nats a token in the "
            "mean); choose a model in another format, such as bfloat16.",
            "model.source",
        )


def _next_log_probs(model: PreTrainedModel, ids: torch.Tensor) -> torch.Tensor:
    logits: torch.Tensor = model(input_ids=ids.to(model.device)).logits[:, :-1].float().cpu()
    return logits.log_softmax(-1).gather(-1, ids[:, 1:, None])


def restore_engine(
    directory: Path, policy: PolicyModel, optimizer: PolicyOptimizer, generator: torch.Generator
) -> None:
    """Put policy, optimizer and generator into the state that was saved.

    Raises:
        EngineError: A file is missing or damaged, or belongs to another model.
    """
    try:
        if has_adapters(policy.model):
            restore_adapters(directory, policy.model)
        else:
            saved = type(policy.model).from_pretrained(directory, dtype=torch.float32, use_safetensors=True)
            policy.model.load_state_dict(saved.state_dict())
        num_steps = read_json(directory / COUNTERS_FILE)["num_optimizer_steps"]
        optimizer.load_state_tensors(load_file(directory / OPTIMIZER_FILE), num_steps)
        generator.set_state(load_file(directory / SAMPLER_FILE)["state"])
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError, SafetensorError) as error:
        raise EngineError(f"{directory}: expected the saved state of this model ({first_line(error)})") from error
    policy.backend.weights_changed()
