"""Low-rank adapters (LoRA) of a policy, through peft: made, saved, restored, and merged into the weights."""

import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedModel

from exgrpo.jobs.runs.checkpoints import ADAPTER_CONFIG, BASE_FIELD
from exgrpo.jobs.specs.base import LoraSpec
from exgrpo_core.errors import EngineError

WEIGHTS_FILE = "adapter_model.safetensors"
ADAPTER = "default"
_PREFIX = "base_model.model."
"""Where peft finds the model inside its own."""


class LoraSettings(LoraSpec):
    """Settings of LoRA; `base` and `base_revision` are the model that the adapters belong to."""

    base: str
    base_revision: str | None = None


def add_adapters(model: PreTrainedModel, settings: LoraSettings, seed: int) -> None:
    """Freeze a model's weights and give its projections adapters, whose products are zero at first."""
    from peft import LoraConfig, inject_adapter_in_model

    config = LoraConfig(
        r=settings.rank,
        lora_alpha=settings.alpha,
        target_modules=list(settings.target_modules),
        base_model_name_or_path=settings.base,
        revision=settings.base_revision,
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        inject_adapter_in_model(config, model, ADAPTER)


def has_adapters(model: nn.Module) -> bool:
    """Return whether adapters were added to a model."""
    return hasattr(model, "peft_config")


def save_adapters(directory: Path, model: PreTrainedModel) -> None:
    """Write a model's adapters in peft's format, and the model's configuration, without its weights."""
    configs: dict[str, Any] = model.peft_config
    configs[ADAPTER].save_pretrained(str(directory))
    model.config.save_pretrained(directory)
    save_file({name: parameter.detach() for name, parameter in _parameters(model)}, directory / WEIGHTS_FILE)


def restore_adapters(directory: Path, model: PreTrainedModel) -> None:
    """Give a model's adapters the values that `save_adapters` wrote.

    Raises:
        OSError: There is no file of them.
        KeyError: They belong to other projections.
        RuntimeError: They have another rank.
    """
    saved = load_file(directory / WEIGHTS_FILE)
    with torch.no_grad():
        for name, parameter in _parameters(model):
            parameter.copy_(saved[name])


def read_base(directory: Path) -> str:
    """Return the local folder of the model that saved adapters belong to.

    Nothing is downloaded, because the author of the adapters chose the name.

    Raises:
        EngineError: It is not on this machine.
        OSError: The configuration cannot be read.
        ValueError: It is not what `save_adapters` writes.
        KeyError: The same.
    """
    from huggingface_hub import snapshot_download

    config = json.loads((directory / ADAPTER_CONFIG).read_text(encoding="utf-8"))
    base, revision = str(config[BASE_FIELD]), config.get("revision") and str(config["revision"])
    folder = directory / base if base.startswith(".") else Path(base)
    if folder.is_dir():
        return os.path.abspath(folder)
    try:
        return snapshot_download(base, revision=revision, local_files_only=True)
    except (OSError, ValueError):  # also of a text that is no name
        of_revision = f" --revision {revision}" if revision else ""
        remedy = f"if you trust that name, run `hf download {base}{of_revision}` first"
        if base.startswith((".", "/")):
            remedy = "put that folder there"
        raise EngineError(
            f"{directory} has adapters of {base}, which is not on this machine; {remedy}.",
            "model.source",
        ) from None


def merge_adapters(directory: Path, base: PreTrainedModel) -> PreTrainedModel:
    """Return the base with saved adapters merged into its weights.

    Raises:
        OSError: There is no file of them.
        ValueError: They are under other names than the configuration's: peft would leave them out.
    """
    from peft import PeftModel, get_peft_model_state_dict

    names = load_file(directory / WEIGHTS_FILE).keys()
    _untie(base, names)
    adapted = PeftModel.from_pretrained(base, str(directory))
    expected = get_peft_model_state_dict(adapted, save_embedding_layers=False).keys()
    odd = sorted(name for name in names ^ expected if "lora_" in name)
    if odd:
        raise ValueError(f"{len(odd)} of its adapters' weights are not those that {ADAPTER_CONFIG} names: {odd[0]}")
    # peft froze the base, which may be trained as a whole now.
    return cast(PreTrainedModel, adapted.merge_and_unload().requires_grad_(True))


def _untie(base: PreTrainedModel, names: Iterable[str]) -> None:
    """Give the output embedding weights of its own if one of two that share theirs was adapted or trained."""
    embedding: Any = base.get_input_embeddings()
    head: Any = base.get_output_embeddings()  # type: ignore[no-untyped-call] # untyped in transformers
    if head is None or embedding.weight is not head.weight:
        return
    own = {name for name, module in base.named_modules() if module in (embedding, head)}
    if any(f".{name}." in adapter for adapter in names for name in own):
        head.weight = nn.Parameter(head.weight.detach().clone())
        base.config.tie_word_embeddings = False


def _parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            yield _PREFIX + name.replace(f".{ADAPTER}.", "."), parameter
