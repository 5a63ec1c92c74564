"""verl's other programs, in the process that calls them."""

from collections.abc import Sequence
from pathlib import Path

from hydra import compose, initialize_config_module
from verl.model_merger.__main__ import main as run_merger
from verl.model_merger.base_model_merger import parse_args
from verl.trainer.sft_trainer import run_sft
from verl.utils.device import auto_set_device

import exgrpo_core.verl_plugin.fsdp_engine  # noqa: F401 - enters verl's registry of engines


def train_sft(name: str, overrides: Sequence[str]) -> None:
    """Train as one process of torchrun, by verl's configuration of that name with overrides."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose(name, overrides=list(overrides))
    auto_set_device(config)
    run_sft(config)


def merge_shards() -> Path:
    """Merge sharded weights as the command line says, and return the model's folder; adapters stay next to them."""
    run_merger()
    return Path(parse_args().target_dir)
