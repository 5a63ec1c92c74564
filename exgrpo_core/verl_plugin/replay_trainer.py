"""Stock verl's trainer with Algorithm 1 as its step: `trainer.v1.trainer_mode=exgrpo`.

Data, validation, checkpoints, loggers and dumps of rollouts are verl's. The replay buffer's segments are in
`trainer.default_local_dir`, its index and the rest of the algorithm's state in each checkpoint's folder.
"""

import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import transfer_queue as tq
import verl
from omegaconf import DictConfig, OmegaConf, open_dict
from transfer_queue import KVBatchMeta
from verl.trainer.ppo.v1.replay_buffer import ReplayBuffer
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.tokenizer.continuous_token_wiring import create_continuous_token_builder

from exgrpo_core.algorithm import exgrpo_step
from exgrpo_core.errors import InputError, first_line
from exgrpo_core.state import ExGRPOState
from exgrpo_core.step_report import StepReport
from exgrpo_core.types import Question, RolloutGroup
from exgrpo_core.verl_plugin.engine import VerlEngine
from exgrpo_core.verl_plugin.questions import find_end_tokens, read_questions
from exgrpo_core.verl_plugin.rows import PARTITION
from exgrpo_core.verl_plugin.run_record import RunRecord
from exgrpo_core.verl_plugin.settings import read_settings, version_notice
from exgrpo_core.verl_plugin.trainer import HEALTH_CHECK_SECONDS, ExperienceTrainer

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


class ReplayTrainer(ExperienceTrainer):
    """verl's synchronous trainer that replays experience."""

    def __init__(self, config: DictConfig) -> None:
        if notice := version_notice(verl.__version__):
            logger.warning(notice)
        settings = read_settings(OmegaConf.to_container(config, resolve=True))
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
            raise InputError("actor_rollout_ref.model.path: expected a model of text alone, got one with a processor.")
        model = omega_conf_to_dataclass(self.config.actor_rollout_ref.model)
        template = OmegaConf.to_container(self.config.data.get("apply_chat_template_kwargs") or OmegaConf.create())
        builder = create_continuous_token_builder(
            self.tokenizer, hf_model_type=model.hf_config.model_type, chat_template_kwargs=template
        )
        algorithm = self._settings.algorithm
        self._questions: list[Question] = read_questions(
            self.train_dataset, builder.build_initial_tokens, algorithm.max_prompt_tokens
        )
        self._engine = VerlEngine(
            self,
            find_end_tokens(model.local_path, self.tokenizer),
            algorithm,
            self._settings.seed,
            self._settings.max_failed_share,
        )
        self._engine.skips_non_finite = True
        self._engine.has_texts = self._settings.record_to is not None

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
        super().on_init_end()
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

    def step(self, metrics: dict[str, Any], timing_raw: dict[str, float]) -> KVBatchMeta:  # noqa: ARG002 # verl's signature
        """Do one step of Algorithm 1; its rows have left the queue, in which verl clears a key that is there."""
        is_last = self.global_steps >= self.total_training_steps
        algorithm = self._settings.algorithm
        self._report: StepReport = exgrpo_step(self._state, self._engine, algorithm, is_last=is_last)
        if self._record is not None:
            self._record.step(self._report)
        for notice in self._report.notices:
            logger.warning(notice)
        tags = [{"global_steps": self.global_steps}]
        tq.kv_batch_put(keys=[STEP_KEY], partition_id=PARTITION, tags=tags)
        return KVBatchMeta(partition_id=PARTITION, keys=[STEP_KEY], tags=tags)

    def _compute_metrics(
        self,
        batch: KVBatchMeta,  # noqa: ARG002 # verl's signature
        metrics: dict[str, Any],
        timing_raw: dict[str, float],
        global_steps: int,
        epoch: int,
    ) -> None:
        num_gpus = self._get_n_gpus_for_throughput()
        metrics |= named_as_in_verl(self._report.metrics, num_gpus)
        metrics |= {f"timing_s/{name}": seconds for name, seconds in timing_raw.items()}
        metrics |= {"training/global_step": global_steps, "training/epoch": epoch}

    def _log_rollout_data(self, batch: KVBatchMeta, timing_raw: dict[str, float], rollout_data_dir: str) -> None:  # noqa: ARG002 # verl's signature
        rows = dumped_rows(self._report.groups)
        decoded = {
            name: self.tokenizer.batch_decode(rows.pop(name), skip_special_tokens=True)
            for name in ("inputs", "outputs")
        }
        columns = {name: rows.pop(name) for name in ("gts", "scores")}
        self._dump_generations(**decoded, **columns, reward_extra_infos_dict=rows, dump_path=rollout_data_dir)


VERL_NAMES = {
    "reward/mean": "critic/score/mean",
    "response/mean_tokens": "response_length/mean",
    "response/max_tokens": "response_length/max",
    "response/truncated_share": "response_length/clip_ratio",
    "policy/entropy": "actor/entropy",
    "loss/policy": "actor/pg_loss",
    "loss/kl": "actor/kl_loss",
    "ratio/clip_share": "actor/pg_clipfrac",
    "optim/gradient_norm": "actor/grad_norm",
    "seconds/rollout": "timing_s/gen",
    "seconds/update": "timing_s/update_actor",
    "seconds/step": "perf/time_per_step",
}
"""verl's names of metrics that every run of verl has; all others keep theirs (`step_report.METRICS`)."""


def named_as_in_verl(metrics: Mapping[str, float], num_gpus: int) -> dict[str, float]:
    """Return the metrics with verl's names, and verl's throughput in tokens a second and GPU."""
    named = {VERL_NAMES.get(name, name): value for name, value in metrics.items()}
    return named | {"perf/throughput": metrics["tokens/generated"] / metrics["seconds/step"] / num_gpus}


def dumped_rows(groups: Sequence[RolloutGroup]) -> dict[str, list[Any]]:
    """Return columns of all trajectories of a step, the replayed ones included, by verl's names of them.

    `inputs` and `outputs` are token ids; `rollout_step` is the step that a trajectory was generated in.
    """
    rows = [
        (group.question, item.token_ids, item.reward, item.rollout_step, is_replayed)
        for group in groups
        for items, is_replayed in ((group.trajectories, False), ([one.experience for one in group.replays], True))
        for item in items
    ]
    return {
        "inputs": [question.prompt_ids.tolist() for question, *_ in rows],
        "outputs": [token_ids.tolist() for _, token_ids, *_ in rows],
        "gts": [question.answer for question, *_ in rows],
        "scores": [float(reward) for _, _, reward, *_ in rows],
        "rollout_step": [rollout_step for *_, rollout_step, _ in rows],
        "is_replayed": [is_replayed for *_, is_replayed in rows],
    }
