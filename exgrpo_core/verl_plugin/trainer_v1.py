"""verl's V1 trainer, of which no other module knows: `trainer.use_v1=True`, the default of verl 0.9."""

import inspect
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
import verl
from omegaconf import DictConfig, OmegaConf, open_dict
from verl.checkpoint_engine import CheckpointEngineManager
from verl.trainer.main_ppo import TaskRunnerV1
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder
from verl.workers.rollout.llm_server import LLMServerManager

from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.errors import InputError, first_line
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question
from exgrpo_core.verl_plugin.blocks import BlockWorker
from exgrpo_core.verl_plugin.engine import VerlEngine
from exgrpo_core.verl_plugin.own_exchange import use_own_exchange
from exgrpo_core.verl_plugin.questions import find_end_tokens, read_questions
from exgrpo_core.verl_plugin.rollout_queue import HEALTH_CHECK_SECONDS, put_mark
from exgrpo_core.verl_plugin.run_record import RunRecord
from exgrpo_core.verl_plugin.settings import read_settings, server_mistake, version_notice
from exgrpo_core.verl_plugin.stock_logs import dumped_rows, named_as_in_verl
from exgrpo_core.verl_plugin.trainer import ExperienceTrainer

logger = logging.getLogger(__name__)

SEGMENTS_FOLDER = "replay_buffer"
EXPERIENCE_FOLDER = "experience"
STEP_KEY = "exgrpo_step"
_BY_TOKENS = (
    "actor_rollout_ref.actor.use_dynamic_bsz",
    "actor_rollout_ref.ref.log_prob_use_dynamic_bsz",
    "actor_rollout_ref.rollout.log_prob_use_dynamic_bsz",
)
"""Micro-batches are cut by tokens: the number of rows with a gradient differs from step to step."""


class TrainerV1(ExperienceTrainer, PPOTrainerSync):
    """Servers share the GPUs of training, as in verl's `sync` mode, or have theirs, as in its `separate_async` mode."""

    role_worker_mapping: dict[Any, Any]

    def __init__(self, config: DictConfig) -> None:
        self.shares_gpus = self._enable_hybrid_replicas = config.actor_rollout_ref.rollout.nnodes == 0
        use_own_exchange(config)
        super().__init__(config)

    def _setup(self) -> None:
        super()._setup()
        if not self.shares_gpus:
            self.llm_server_manager = LLMServerManager.create(config=self.config)
            engine = omega_conf_to_dataclass(self.config.actor_rollout_ref.rollout.checkpoint_engine)
            replicas = self.llm_server_manager.get_replicas()
            self.checkpoint_manager = CheckpointEngineManager(engine, self.actor_rollout_wg, replicas)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, ray.remote(BlockWorker))

    def on_init_end(self) -> None:
        """Leave the servers asleep: weights are sent before the first generation."""


class RunTrainerV1(TrainerV1):
    """Questions, checkpoints and the end of a run come from the training loop of every engine."""

    def start(self) -> None:
        """Start workers, servers, graders and agent loops."""
        self.init()
        # The driver is the run's worker, which records and stops, and no process of verl's.
        runner = TaskRunnerV1.__ray_metadata__.modified_class()
        runner.config, runner.trainer = self.config, self
        runner.init_agent_loop_manager()
        self.agent_loop_manager = runner.agent_loop_manager

    def _init_dataloader(self) -> None:
        """Load no data: questions come from the algorithm."""
        self.total_training_steps = self.plan_steps()

    def _load_checkpoint(self) -> None:
        """Start from the model: checkpoints are restored by the training loop."""
        self.global_steps = 0


class ReplayTrainer(TrainerV1):
    """Stock verl's trainer with Algorithm 1 as its step: `trainer.v1.trainer_mode=exgrpo`.

    Data, validation, checkpoints, loggers and dumps of rollouts are verl's. The replay buffer's segments are in
    `trainer.default_local_dir`, its index and the rest of the algorithm's state in each checkpoint's folder.
    """

    def __init__(self, config: DictConfig) -> None:
        if notice := version_notice(verl.__version__):
            logger.warning(notice)
        settings = read_settings(OmegaConf.to_container(config, resolve=True))
        if mistake := server_mistake(config, verl.__version__):
            raise InputError(mistake)
        with open_dict(config):
            # verl treats every mode but this one as asynchronous.
            config.trainer.v1.trainer_mode = "sync"
            for name in _BY_TOKENS:
                OmegaConf.update(config, name, True)
        super().__init__(config)
        self._settings = settings
        self._record: RunRecord | None = None

    def _init_dataloader(self) -> None:
        super()._init_dataloader()
        if self.processor is not None:
            raise InputError(
                "actor_rollout_ref.model.path: only text models work; this one has an image or audio processor."
            )
        model = omega_conf_to_dataclass(self.config.actor_rollout_ref.model)
        settings, algorithm = self._settings, self._settings.algorithm
        self._questions: list[Question] = read_questions(
            self.train_dataset, self._encoder(model.hf_config.model_type), algorithm.max_prompt_tokens
        )
        end_token_ids = find_end_tokens(model.local_path, self.tokenizer)
        self._engine = VerlEngine(self, end_token_ids, algorithm, settings.seed, settings.max_failed_share)
        self._engine.skips_non_finite = True
        self._engine.has_texts = settings.record_to is not None

    def _encoder(self, model_type: str) -> Callable[[Any], list[int]]:
        """Return how verl's agent loops encode a prompt."""
        template = OmegaConf.to_container(self.config.data.get("apply_chat_template_kwargs") or OmegaConf.create())
        # verl 0.9.0 looks for the model's family in the tokenizer's path.
        is_by_type = "hf_model_type" in inspect.signature(create_continuous_token_builder).parameters
        family = {"hf_model_type": model_type} if is_by_type else {"model_family": "auto"}
        builder = create_continuous_token_builder(self.tokenizer, chat_template_kwargs=template, **family)
        encode: Callable[[Any], list[int]] = builder.build_initial_tokens
        return encode

    def _load_checkpoint(self) -> None:
        super()._load_checkpoint()
        algorithm, questions = self._settings.algorithm, self._questions
        segments = Path(self.config.trainer.default_local_dir, SEGMENTS_FOLDER)
        saved = self._checkpoint_folder() / EXPERIENCE_FOLDER
        if self.global_steps and saved.is_dir():
            self._state = ExGRPOState.restore(segments, saved, questions, algorithm)
            self._engine.restore_counter(saved)
            return
        self._state = ExGRPOState.create(segments, questions, algorithm)
        if self.global_steps:
            logger.warning("%s: is missing, so the replay buffer starts empty.", saved)
            self._state.step = self.global_steps

    def fit(self, agent_loop_manager: Any) -> None:
        """Train to the end, and record how it ended where it is recorded."""
        if self._settings.record_to is None:
            super().fit(agent_loop_manager)
            return
        config = OmegaConf.to_container(self.config, resolve=True)
        config["trainer"]["total_training_steps"] = self.total_training_steps
        runs = Path(self._settings.record_to)
        self._record = RunRecord.open(runs, config, self._settings.algorithm, is_resumed=self.global_steps > 0)
        try:
            self._record.begin(self._questions, self.tokenizer.decode)
            super().fit(agent_loop_manager)
        except BaseException as error:
            self._record.end("failed", f"{type(error).__name__}: {first_line(error)}")
            raise
        self._record.end("finished")

    def _save_checkpoint(self) -> None:
        if self._record is not None:
            self._record.settle()
        # First, since verl calls the checkpoint the latest at the end of its part.
        saved = Path(self.config.trainer.default_local_dir, f"global_step_{self.global_steps}", EXPERIENCE_FOLDER)
        self._state.save(saved)
        self._engine.save_counter(saved)
        super()._save_checkpoint()

    def _checkpoint_folder(self) -> Path:
        trainer = self.config.trainer
        if trainer.resume_mode == "resume_path":
            return Path(trainer.resume_from_path)
        return Path(trainer.default_local_dir, f"global_step_{self.global_steps}")

    def on_init_end(self) -> None:
        """Have verl's validation check the agent loops: it would wait for ever for one that has died."""
        verl_queue: ReplayBuffer = self.replay_buffer
        wait, checked_at = verl_queue._wait_for_next_poll, time.monotonic()

        def wait_and_check(*arguments: Any) -> Any:
            nonlocal checked_at
            if time.monotonic() - checked_at > HEALTH_CHECK_SECONDS:
                checked_at = time.monotonic()
                self.check_agent_loops()
            return wait(*arguments)

        verl_queue._wait_for_next_poll = wait_and_check

    def on_validate_begin(self) -> None:
        """Give the servers the current weights."""
        self.wake()

    def on_step_end(self) -> None:
        """Leave the servers asleep: weights are sent before the next generation."""

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> Any:  # noqa: ARG002 # verl's signature
        """Do one step of Algorithm 1; its rows have left the queue, in which verl clears a key that is there."""
        is_last = self.global_steps >= self.total_training_steps
        algorithm = self._settings.algorithm
        self._report: StepReport = exgrpo_step(self._state, self._engine, algorithm, is_last=is_last)
        if self._record is not None:
            self._record.step(self._report)
        for notice in self._report.notices:
            logger.warning(notice)
        return put_mark(STEP_KEY, self.global_steps)

    def _compute_metrics(
        self, batch: Any, metrics: dict[str, Any], timing_raw: dict[str, float], global_steps: int, epoch: int
    ) -> None:
        del batch
        metrics |= named_as_in_verl(self._report.metrics, self._get_n_gpus_for_throughput())
        metrics |= {f"timing_s/{name}": seconds for name, seconds in timing_raw.items()}
        metrics |= {"training/global_step": global_steps, "training/epoch": epoch}

    def _log_rollout_data(self, batch: Any, timing_raw: dict[str, float], rollout_data_dir: str) -> None:  # noqa: ARG002 # verl's signature
        rows = dumped_rows(self._report.groups)
        decoded = {
            name: self.tokenizer.batch_decode(rows.pop(name), skip_special_tokens=True)
            for name in ("inputs", "outputs")
        }
        columns = {name: rows.pop(name) for name in ("gts", "scores")}
        self._dump_generations(**decoded, **columns, reward_extra_infos_dict=rows, dump_path=rollout_data_dir)
