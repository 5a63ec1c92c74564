"""The entry in verl's registry of trainers: `trainer.v1.trainer_mode=exgrpo`."""

from omegaconf import DictConfig
from verl.trainer.ppo.v1.trainer_base import PPOTrainer, register_trainer

from exgrpo_core.verl_plugin.settings import TRAINER_MODE


@register_trainer(TRAINER_MODE)
class RegisteredTrainer(PPOTrainer):
    """Makes a `ReplayTrainer`, whose module imports parts of verl that import the registry themselves."""

    def __new__(cls, config: DictConfig) -> PPOTrainer:
        """Return the trainer that verl runs."""
        from exgrpo_core.verl_plugin.replay_trainer import ReplayTrainer

        return ReplayTrainer(config)
