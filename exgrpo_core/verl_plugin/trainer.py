"""verl's workers and servers and their exchange of weights, as `exgrpo_step` needs them.

`trainer_v1` and `trainer_v0` say where verl's trainers have them. Rollouts come from verl's agent loops; failed ones
are tried a second time, then their prompt is left out.
"""

import contextlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import ray
from omegaconf import open_dict
from ray.exceptions import GetTimeoutError
from verl.utils.metric import reduce_metrics

from exgrpo_core.methods.loading import ObjectiveSettings
from exgrpo_core.types import Float32Array
from exgrpo_core.verl_plugin.blocks import Answer, Block, in_given_order, make_blocks, num_ranks
from exgrpo_core.verl_plugin.own_exchange import StoppableExchange
from exgrpo_core.verl_plugin.rollout_queue import HEALTH_CHECK_SECONDS, OTHER, TRAINING, Prompt, begin, clear_rows, take
from exgrpo_core.verl_plugin.rows import LOG_PROBS, QueuedRow, TokenRow
from exgrpo_core.verl_plugin.update import ExperienceLoss, decided_columns

logger = logging.getLogger(__name__)

SECOND_TRY = "again"
"""Ends the uid of a prompt that is tried a second time; verl's keys give `_` a meaning of its own."""


@dataclass(frozen=True, slots=True)
class Generated:
    """The rollouts of a batch of prompts, which stay in TransferQueue until the caller clears them."""

    rows: list[QueuedRow]
    """All rollouts that are there, prompt by prompt, in the order of their number."""
    failed: list[int]
    """Positions of the prompts that are left out, since a rollout of each failed twice."""


class ExperienceTrainer:
    """Rollouts, scores and updates as separate calls; one of verl's trainers is the other base and has what they use.

    Servers share the GPUs of training, or have GPUs of their own (`rollout.nnodes`); then rollouts can be begun before
    the update and taken after it.
    """

    config: Any
    global_steps: int
    actor_rollout_wg: Any
    ref_policy_wg: Any
    ref_in_actor: bool
    """The reference is the actor without its adapters."""
    checkpoint_manager: Any
    agent_loop_manager: Any
    shares_gpus = True
    """Servers are on the GPUs of training."""
    keeps_seen = False
    """Have updates return what the losses saw, for records."""
    stop_requested: Callable[[], bool] = staticmethod(lambda: False)
    """Asked while weights are sent to the servers, which can take long."""
    _begun: "tuple[Sequence[Prompt], Prompt] | None" = None
    _finished: "Generated | None" = None
    _has_weights = False
    """The servers have the current weights; at first they are asleep."""
    _objective: ObjectiveSettings | None = None

    @cached_property
    def _exchange(self) -> StoppableExchange:
        return StoppableExchange()

    def plan_steps(self) -> int:
        """Return how many steps are planned, which the learning-rate schedule needs too."""
        num_steps: int = self.config.trainer.total_training_steps
        with open_dict(self.config):
            self.config.actor_rollout_ref.actor.optim.total_training_steps = num_steps
        return num_steps

    def generate(self, prompts: Sequence[Prompt], shared: Prompt, is_training: bool) -> Generated:
        """Return the rollouts of all prompts under the current policy, see `collect`."""
        self.wake()
        _begin(self, prompts, shared, is_training)
        return collect(self, prompts, shared, is_training)

    def begin(self, prompts: Sequence[Prompt], shared: Prompt) -> None:
        """Have the servers begin rollouts of training under the current policy, for `finish`."""
        self.wake()
        _begin(self, prompts, shared, is_training=True)
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

        Log-probs of rows that are in TransferQueue are put next to them too.
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
    ) -> tuple[dict[str, float], dict[str, list[Float32Array]]]:
        """Take one optimizer step; return verl's metrics with the loss's sums, and what losses saw of the rows' tokens.

        The latter are `SEEN_VALUES` by name, (T,) for each row, and nothing without `keeps_seen`.
        """
        self._sleep()
        self._has_weights = False
        if objective != self._objective:
            self.actor_rollout_wg.set_loss_fn(ExperienceLoss(objective, self.keeps_seen))
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
        blocks, shares = make_blocks(rows, num_ranks(workers), decided_columns(objective), options)
        answers = workers.train_block(blocks)
        # Ranks have gathered each other's metrics.
        return reduce_metrics(answers[0][0]), in_given_order(shares, [seen for _, seen in answers], len(rows))

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
            send = partial(self.checkpoint_manager.update_weights, self.global_steps)
            self._exchange.run(send, self.stop_requested, self._end_workers)
            self._has_weights = True

    def _end_workers(self) -> None:
        for worker in self.actor_rollout_wg.workers:
            ray.kill(worker)

    def _sleep(self) -> None:
        """Free the servers' memory for the workers on the same GPUs; they lose their weights."""
        if self._has_weights and self.shares_gpus:
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
        lengths |= take(prompts, partition, trainer.check_agent_loops)
        missing = [prompt for prompt in prompts if not lengths.keys() >= set(_keys(prompt))]
        if missing:
            logger.warning("%d of %d prompts had a failed rollout and are tried again.", len(missing), len(prompts))
            again = [_second(prompt) for prompt in missing]
            _begin(trainer, again, shared, is_training)
            lengths |= take(again, partition, trainer.check_agent_loops)
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
    return TRAINING if is_training else OTHER


def _begin(trainer: "ExperienceTrainer", prompts: Sequence[Prompt], shared: Prompt, is_training: bool) -> None:
    begin(trainer.agent_loop_manager, prompts, shared, partition_of(is_training), trainer.global_steps)


def _second(prompt: Prompt) -> Prompt:
    return {**prompt, "uid": f"{prompt['uid']}-{SECOND_TRY}"}


def _keys(prompt: Prompt) -> list[str]:
    return [f"{prompt['uid']}_{number}_0" for number in range(prompt["__rollout_n__"])]
