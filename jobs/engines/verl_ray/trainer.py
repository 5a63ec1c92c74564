"""verl's trainer in the run's worker: without verl's data, loop and checkpoints, which the workbench has itself."""

from omegaconf import DictConfig, open_dict
from verl.trainer.main_ppo import TaskRunnerV1

from exgrpo_core.verl_plugin.trainer import ExperienceTrainer


class _TaskRunner(TaskRunnerV1.__ray_metadata__.modified_class):
    """verl's task runner in this process: the driver is the run's worker, which records and stops."""

    def __init__(self, config: DictConfig, trainer: "WorkbenchTrainer") -> None:
        super().__init__()
        self.config = config
        self.trainer = trainer


class WorkbenchTrainer(ExperienceTrainer):
    """Questions, checkpoints and the end of a run come from the training loop of every engine."""

    def start(self) -> None:
        """Start workers, servers, graders and agent loops."""
        self.init()
        runner = _TaskRunner(self.config, self)
        runner.init_agent_loop_manager()
        self.agent_loop_manager = runner.agent_loop_manager

    def _init_dataloader(self) -> None:
        """Load no data: questions come from the algorithm. The learning-rate schedule needs the number of steps."""
        self.total_training_steps = self.config.trainer.total_training_steps
        with open_dict(self.config):
            self.config.actor_rollout_ref.actor.optim.total_training_steps = self.total_training_steps

    def _load_checkpoint(self) -> None:
        """Start from the model: checkpoints are restored by the training loop."""
        self.global_steps = 0
