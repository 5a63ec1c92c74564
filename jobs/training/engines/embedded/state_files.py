"""An engine on disk: a folder of a model, or of its adapters, with optimizer, sampler and counters beside it."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from transformers import GenerationConfig, PreTrainedModel

from exgrpo_core.bounded_json import read_json
from exgrpo_core.errors import EngineError, first_line
from jobs.training.engines.embedded.lora import has_adapters, restore_adapters, save_adapters
from jobs.training.engines.embedded.model import PolicyModel
from jobs.training.engines.embedded.update import PolicyOptimizer

OPTIMIZER_FILE = "optimizer.safetensors"
SAMPLER_FILE = "sampler.safetensors"
COUNTERS_FILE = "engine.json"
GENERATION_FILE = "generation_config.json"


def save_engine(directory: Path, policy: PolicyModel, optimizer: PolicyOptimizer, generator: torch.Generator) -> None:
    """Write everything that decides what the engine does next; the folder also loads as a model."""
    directory.mkdir(parents=True, exist_ok=True)
    save_model(directory, policy.model)
    policy.tokenizer.save_pretrained(directory)
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
