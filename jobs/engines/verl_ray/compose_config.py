"""verl's configuration, composed from its defaults and KEY=VALUE overrides."""

from collections.abc import Sequence

from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device


def compose_config(overrides: Sequence[str]) -> DictConfig:
    """Return verl's whole configuration with `overrides` applied."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=list(overrides))
    auto_set_device(config)
    validate_config(config, use_reference_policy=config.actor_rollout_ref.actor.use_kl_loss, use_critic=False)
    return config
