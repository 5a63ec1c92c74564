"""verl's configuration, composed from its own defaults and KEY=VALUE words."""

from collections.abc import Sequence

from hydra import compose, initialize_config_module
from omegaconf import DictConfig
from verl.utils.config import validate_config
from verl.utils.device import auto_set_device

from jobs.engines.verl_ray.agent_loop import AGENT_NAME
from jobs.specs import TrainSpec

SETUP_MODULE = "jobs.engines.verl_ray.worker_setup"


def engine_words(spec: TrainSpec) -> list[str]:
    """Return what this engine itself needs, whatever the specification says."""
    rows = 4 * spec.algorithm.batch_size * spec.algorithm.rollouts_per_question
    return [
        f"actor_rollout_ref.model.external_lib={SETUP_MODULE}",
        f"actor_rollout_ref.rollout.agent.default_agent_loop={AGENT_NAME}",
        "actor_rollout_ref.rollout.calculate_log_probs=True",
        f"transfer_queue.backend.SimpleStorage.total_storage_size={max(rows, 10_000)}",
        "trainer.v1.trainer_mode=sync",
    ]


def compose_config(words: Sequence[str]) -> DictConfig:
    """Return verl's whole configuration with `words` applied."""
    with initialize_config_module("verl.trainer.config", version_base=None):
        config = compose("ppo_trainer", overrides=list(words))
    auto_set_device(config)
    validate_config(config, use_reference_policy=config.actor_rollout_ref.actor.use_kl_loss, use_critic=False)
    return config
