"""verl's workers and servers and their exchange of weights, as `exgrpo_step` needs them."""

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import ray
from ray.exceptions import GetTimeoutError
from verl.trainer.ppo.v1.trainer_sync import PPOTrainerSync
from verl.utils.metric import reduce_metrics

from exgrpo_core.methods.run_strategies import ObjectiveSettings
from exgrpo_core.types import Float32Array
from exgrpo_core.verl_plugin.blocks import Answer, Block, in_given_order, make_blocks
from exgrpo_core.verl_plugin.generation import Generated, Prompt, generate
from exgrpo_core.verl_plugin.loss import decided_columns, experience_loss
from exgrpo_core.verl_plugin.rows import LOG_PROBS, QueuedRow, TokenRow
from exgrpo_core.verl_plugin.worker import BlockWorker, num_ranks

POLL_SECONDS = 0.05
"""Seconds between polls for finished rollouts; verl's 2 s would be half of a short step."""
HEALTH_CHECK_SECONDS = 20.0
"""Seconds between checks that the agent loops live, while rollouts are awaited."""


class ExperienceTrainer(PPOTrainerSync):
    """verl's synchronous trainer with rollouts, scores and updates as separate calls."""

    role_worker_mapping: dict[Any, Any]

    def _init_resource_pool_mgr(self) -> None:
        super()._init_resource_pool_mgr()
        self.role_worker_mapping = dict.fromkeys(self.role_worker_mapping, ray.remote(BlockWorker))

    def on_init_end(self) -> None:
        """Get ready for the first generation; the servers stay asleep, since weights are sent before it."""
        self._watch_rollouts()
        self.num_workers = int(self.actor_rollout_wg.world_size)
        self._is_awake = False
        self._objective: ObjectiveSettings | None = None

    def generate(self, prompts: Sequence[Prompt], shared: Prompt, is_training: bool) -> Generated:
        """Return the rollouts of all prompts under the current policy, see `generation.generate`."""
        self.wake()
        return generate(self, prompts, shared, is_training)

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
        """Write every rank's share of model and optimizer into `folder`, which all machines must see."""
        self.actor_rollout_wg.save_checkpoint(folder, None, self.global_steps, None)

    def restore(self, folder: str) -> None:
        """Read what as many ranks wrote."""
        self._sleep()
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

    def _watch_rollouts(self) -> None:
        """Check the agent loops while waiting for rollouts: verl would wait for ever for one that has died."""
        self.replay_buffer.poll_interval = POLL_SECONDS
        wait, checked_at = self.replay_buffer._wait_for_next_poll, time.monotonic()

        def wait_and_check(*arguments: Any) -> Any:
            nonlocal checked_at
            if time.monotonic() - checked_at > HEALTH_CHECK_SECONDS:
                checked_at = time.monotonic()
                # A busy worker may answer late; a dead one raises.
                with contextlib.suppress(GetTimeoutError):
                    workers = self.agent_loop_manager.agent_loop_workers
                    ray.get([worker.__ray_ready__.remote() for worker in workers], timeout=HEALTH_CHECK_SECONDS)
            return wait(*arguments)

        self.replay_buffer._wait_for_next_poll = wait_and_check

    def wake(self) -> None:
        """Send the current weights to the servers if they lack them."""
        if not self._is_awake:
            self.checkpoint_manager.update_weights(self.global_steps)
            self._is_awake = True

    def _sleep(self) -> None:
        """Free the servers' memory for the workers; they lose their weights."""
        if self._is_awake:
            self.checkpoint_manager.sleep_replicas()
            self._is_awake = False
