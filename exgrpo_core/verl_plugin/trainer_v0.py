"""verl's older trainer, of which no other module knows: `trainer.use_v1=False`.

Agent loops answer into TransferQueue here too. Servers are on the GPUs of training.
"""

from typing import Any

import ray
from omegaconf import DictConfig, open_dict
from verl.trainer.main_ppo_v0 import BaseTaskRunner
from verl.trainer.ppo.ray_trainer import RayPPOTrainer
from verl.utils.config import omega_conf_to_dataclass

from exgrpo_core.verl_plugin.blocks import BlockWorker
from exgrpo_core.verl_plugin.own_exchange import use_own_exchange
from exgrpo_core.verl_plugin.trainer import ExperienceTrainer

AGENT_LOOPS = "verl.trainer.ppo.v1.agent_loop_tq.AgentLoopManagerTQ"
"""verl's agent loops that answer into TransferQueue."""


class RunTrainerV0(ExperienceTrainer, RayPPOTrainer):
    """Questions, checkpoints and the end of a run come from the training loop of every engine."""

    def __init__(self, config: DictConfig) -> None:
        rollout = config.actor_rollout_ref.rollout
        with open_dict(config):
            rollout.agent.agent_loop_manager_class = rollout.agent.get("agent_loop_manager_class") or AGENT_LOOPS
        use_own_exchange(config)
        roles = BaseTaskRunner()
        roles.add_actor_rollout_worker(config)
        roles.add_reward_model_resource_pool(config)
        model = omega_conf_to_dataclass(config.actor_rollout_ref.model)
        workers = dict.fromkeys(roles.role_worker_mapping, ray.remote(BlockWorker))
        super().__init__(config, model.tokenizer, workers, roles.init_resource_pool_mgr(config))

    def _create_dataloader(self, train_dataset: Any, val_dataset: Any, collate_fn: Any, train_sampler: Any) -> None:  # noqa: ARG002 # verl's signature
        """Load no data: questions come from the algorithm."""
        self.total_training_steps = self.plan_steps()

    def start(self) -> None:
        """Start workers, servers, graders and agent loops."""
        self.global_steps = 0
        self.init_workers()
        self.agent_loop_manager = self.async_rollout_manager
