"""verl's workers and servers and their exchange of weights, as `exgrpo_step` needs them.

Rollouts come from verl's agent loops; failed ones are tried a second time, then their prompt is left out.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import ray
import transfer_queue as tq
from omegaconf import DictConfig
from ray.exceptions import GetTimeoutError
from verl.checkpoint_engine import CheckpointEngineManager
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.config import omega_conf_to_dataclass
from verl.utils.metric import reduce_metrics
from verl.utils.tensordict_utils import assign_non_tensor_data, get_tensordict
from verl.workers.rollout.llm_server import LLMServerManager

from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.types import Float32Array
from exgrpo_core.verl_plugin.blocks import Answer, Block, BlockWorker, in_given_order, make_blocks, num_ranks
from exgrpo_core.verl_plugin.rows import LOG_PROBS, PARTITION, QueuedRow, TokenRow, clear_rows
from exgrpo_core.verl_plugin.update import decided_columns, experience_loss

logger = logging.getLogger(__name__)

DONE = ("finished", "failure")
"""verl's states of a prompt whose rollouts are there, or some of them."""
SECOND_TRY = "again"
"""Ends the uid of a prompt that is tried a second time; verl's keys give `_` a meaning of its own."""

POLL_SECONDS = 0.05
"""Seconds between polls for finished rollouts."""
MAX_POLLING_SHARE = 0.2
"""Share of the wait that polls take, at most: a list of many rollouts takes TransferQueue long."""
HEALTH_CHECK_SECONDS = 20.0
"""Seconds between checks that the agent loops live, while rollouts are awaited."""

Prompt = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Generated:
    """The rollouts of a batch of prompts, which stay in TransferQueue until the caller clears them."""

    rows: list[QueuedRow]
    """All rollouts that are there, prompt by prompt, in the order of their number."""
    failed: list[int]
    """Positions of the prompts that are left out, since a rollout of each failed twice."""


class ExperienceTrainer(PPOTrainerSync):
    """verl's synchronous trainer with rollouts, scores and updates as separate calls.

    Servers share the GPUs of training, as in verl's `sync` mode, or have GPUs of their own (`rollout.nnodes`), as in
    its `separate_async` mode; then rollouts can be begun before the update and taken after it.
    """

    role_worker_mapping: dict[Any, Any]
    _enable_hybrid_replicas = True
    """verl's name: servers are on the GPUs of training."""
    _begun: "tuple[Sequence[Prompt], Prompt] | None" = None
    _finished: "Generated | None" = None

    def __init__(self, config: DictConfig) -> None:
        self._enable_hybrid_replicas = config.actor_rollout_ref.rollout.nnodes == 0
        super().__init__(config)

    def _setup(self) -> None:
        super()._setup()
        if not self._enable_hybrid_replicas:
            self.llm_server_manager = LLMServerManager.create(config=self.config)
            engine = omega_conf_to_dataclass(self.config.actor_rollout_ref.rollout.checkpoint_engine)
            replicas = self.llm_server_manager.get_replicas()
            self.checkpoint_manager = CheckpointEngineManager(engine, self.actor_rollout_wg, replicas)

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, ray.remote(BlockWorker))

    def on_init_end(self) -> None:
        """Get ready for the first generation; the servers stay asleep, since weights are sent before it."""
        self.num_workers = int(self.actor_rollout_wg.world_size)
        self._has_weights = False
        self._objective: ObjectiveSettings | None = None

    def generate(self, prompts: Sequence[Prompt], shared: Prompt, is_training: bool) -> Generated:
        """Return the rollouts of all prompts under the current policy, see `collect`."""
        self.wake()
        _begin(self, prompts, shared, partition_of(is_training))
        return collect(self, prompts, shared, is_training)

    def begin(self, prompts: Sequence[Prompt], shared: Prompt) -> None:
        """Have the servers begin rollouts of training under the current policy, for `finish`."""
        self.wake()
        _begin(self, prompts, shared, PARTITION)
        self._begun = prompts, shared

    def finish(self) -> Generated:
        """Return the rollouts that were begun; also one that is tried again is of the policy that began them."""
        self._await_begun()
        assert self._finished is not None, "rollouts were not begun"
        finished, self._finished = self._finished, None
        return finished

    def _await_begun(self) -> None:
        if self._begun is not None:
            (prompts, shared), self._begun = self._begun, None
            self._finished = collect(self, prompts, shared, is_training=True)

    def score(self, rows: Sequence[TokenRow | QueuedRow]) -> dict[str, list[Any]]:
        """Return log-probs and entropies under the current policy, and what workers read of the rows: their columns.

        Log-probs of rows that are in TransferQueue are put beside them too.
        """
        workers = self.actor_rollout_wg
        return self._score(rows, workers.score_block, num_ranks(workers), {"calculate_entropy": True})

    def reference_log_probs(self, rows: Sequence[TokenRow | QueuedRow]) -> list[Float32Array]:
        """Return log-probs of the rows' responses under the initial policy: with adapters, the model without them."""
        options = {"calculate_entropy": False, "no_lora_adapter": self.ref_in_actor}
        if self.ref_in_actor:
            workers = self.actor_rollout_wg
            scored = self._score(rows, workers.score_block_without_adapters, num_ranks(workers), options)
        else:
            workers = self.ref_policy_wg
            scored = self._score(rows, workers.score_block_by_reference, num_ranks(workers, "ref"), options)
        return scored[LOG_PROBS]

    def train_mini_batch(
        self, rows: Sequence[TokenRow | QueuedRow], objective: ObjectiveSettings, num_trajectories: int, num_tokens: int
    ) -> dict[str, float]:
        """Take one optimizer step and return verl's metrics, with the loss's sums among them."""
        self._sleep()
        self._has_weights = False
        if objective != self._objective:
            self.actor_rollout_wg.set_loss_fn(partial(experience_loss, objective))
            self._objective = objective
        options = {
            "num_mini_batch": 1,
            "epochs": 1,
            "seed": 0,
            "dataloader_kwargs": {"shuffle": False},
            "temperature": self.config.actor_rollout_ref.rollout.temperature,
            "calculate_entropy": objective.entropy_coefficient > 0.0,
            "num_trajectories": num_trajectories,
            "num_tokens": num_tokens,
        }
        workers = self.actor_rollout_wg
        blocks, _ = make_blocks(rows, num_ranks(workers), decided_columns(objective), options)
        # Ranks have gathered each other's metrics.
        metrics: dict[str, float] = reduce_metrics(workers.train_block(blocks)[0])
        return metrics

    def save(self, folder: str) -> None:
        """Write every rank's share of model and optimizer and checksums into `folder`, which all machines must see."""
        self.actor_rollout_wg.save_checkpoint(folder, None, self.global_steps, None)

    def find_changed(self, folder: str) -> list[str]:
        """Return which files of a checkpoint differ from what ranks wrote; each rank reads a share of them."""
        return [name for names in self.actor_rollout_wg.find_changed(folder) for name in names]

    def restore(self, folder: str) -> None:
        """Read what these or another number of ranks wrote."""
        self._sleep()
        self._has_weights = False
        self.actor_rollout_wg.load_checkpoint(folder, None, False)

    def _score(
        self,
        rows: Sequence[TokenRow | QueuedRow],
        score: Callable[[list[Block]], list[Answer]],
        num_blocks: int,
        options: Mapping[str, Any],
    ) -> dict[str, list[Any]]:
        self._sleep()
        temperature = self.config.actor_rollout_ref.rollout.temperature
        blocks, shares = make_blocks(
            rows, num_blocks, (), {**options, "compute_loss": False, "temperature": temperature}
        )
        return in_given_order(shares, score(blocks), len(rows))

    def check_agent_loops(self) -> None:
        """Raise if an agent loop has died: its rollouts would never come."""
        # A busy worker may answer late; a dead one raises.
        with contextlib.suppress(GetTimeoutError):
            workers = self.agent_loop_manager.agent_loop_workers
            ray.get([worker.__ray_ready__.remote() for worker in workers], timeout=HEALTH_CHECK_SECONDS)

    def wake(self) -> None:
        """Send the current weights to the servers if they lack them, once they have no rollout to finish."""
        if not self._has_weights:
            self._await_begun()
            self.checkpoint_manager.update_weights(self.global_steps)
            self._has_weights = True

    def _sleep(self) -> None:
        """Free the servers' memory for the workers on the same GPUs; they lose their weights."""
        if self._has_weights and self._enable_hybrid_replicas:
            self.checkpoint_manager.sleep_replicas()
            self._has_weights = False


def collect(
    trainer: "ExperienceTrainer", prompts: Sequence[Prompt], shared: Mapping[str, Any], is_training: bool
) -> Generated:
    """Return the rollouts of all prompts, which were begun; one with a failed rollout has a second try, with its seeds.

    A prompt's columns are those of `agent_loop`, with `uid` and `__rollout_n__`; `shared` are equal for all.
    """
    partition = partition_of(is_training)
    lengths: dict[str, int] = {}
    wanted: list[str] = []
    try:
        lengths |= _take(trainer, prompts, partition)
        missing = [prompt for prompt in prompts if not lengths.keys() >= set(_keys(prompt))]
        if missing:
            logger.warning("%d of %d prompts had a failed rollout and are tried again.", len(missing), len(prompts))
            again = [_second(prompt) for prompt in missing]
            _begin(trainer, again, shared, partition)
            lengths |= _take(trainer, again, partition)
        kept: list[str] = []
        failed = []
        for position, prompt in enumerate(prompts):
            keys = next((keys for keys in (_keys(prompt), _keys(_second(prompt))) if lengths.keys() >= set(keys)), None)
            if keys is None:
                failed.append(position)
            else:
                kept += keys
        wanted = kept
        return Generated([QueuedRow(key, lengths[key]) for key in wanted], failed)
    finally:
        clear_rows(sorted(lengths.keys() - set(wanted)), partition)


def partition_of(is_training: bool) -> str:
    """Return the partition of TransferQueue into which verl's agent loops put rollouts."""
    return PARTITION if is_training else "val"


def _second(prompt: Prompt) -> Prompt:
    return {**prompt, "uid": f"{prompt['uid']}-{SECOND_TRY}"}


def _keys(prompt: Prompt) -> list[str]:
    return [f"{prompt['uid']}_{number}_0" for number in range(prompt["__rollout_n__"])]


def _begin(trainer: "ExperienceTrainer", prompts: Sequence[Prompt], shared: Mapping[str, Any], partition: str) -> None:
    batch = get_tensordict({name: [prompt[name] for prompt in prompts] for name in prompts[0]})
    assign_non_tensor_data(batch, "global_steps", trainer.global_steps)
    for name, value in shared.items():
        assign_non_tensor_data(batch, name, value)
    if partition != PARTITION:
        assign_non_tensor_data(batch, "validate", True)
    uids = [prompt["uid"] for prompt in prompts]
    tags = [{"is_prompt": True, "status": "pending", "global_steps": trainer.global_steps} for _ in uids]
    tq.kv_batch_put(keys=uids, partition_id=partition, tags=tags)
    trainer.agent_loop_manager.generate_sequences(batch)


def _take(trainer: "ExperienceTrainer", prompts: Sequence[Prompt], partition: str) -> dict[str, int]:
    """Wait for the prompts and return the rollouts that came: keys, and tokens with the prompt."""
    uids = {prompt["uid"] for prompt in prompts}
    listed = _await_prompts(trainer, uids, partition)
    tq.kv_clear(keys=sorted(uids), partition_id=partition)
    return {key: int(tag["seq_len"]) for key, tag in listed.items() if key not in uids and key.split("_")[0] in uids}


def _await_prompts(trainer: "ExperienceTrainer", uids: set[str], partition: str) -> Mapping[str, Mapping[str, Any]]:
    """Return what is in the partition, by key, once agent loops are done with the prompts."""
    checked_at = time.monotonic()
    while True:
        began_at = time.monotonic()
        listed: Mapping[str, Mapping[str, Any]] = tq.kv_list(partition_id=partition)[partition]
        poll_seconds = time.monotonic() - began_at
        if all(listed[uid]["status"] in DONE for uid in uids):
            return listed
        if began_at - checked_at > HEALTH_CHECK_SECONDS:
            checked_at = began_at
            trainer.check_agent_loops()
        time.sleep(max(POLL_SECONDS, poll_seconds * (1.0 / MAX_POLLING_SHARE - 1.0)))
