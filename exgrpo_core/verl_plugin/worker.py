"""verl's worker, whose rows come and go as one block a rank."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from verl.single_controller.base.decorator import dispatch_nd_compute, register
from verl.utils.tensordict_utils import get
from verl.workers.engine_workers import ActorRolloutRefWorker

from exgrpo_core.verl_plugin.blocks import (
    Answer,
    Block,
    answer_scored,
    fetch_queued,
    put_log_probs,
    read_block,
    scores_of,
)
from exgrpo_core.verl_plugin.rows import LOG_PROBS, ROLLOUT_COLUMNS, STORED_LOG_PROBS

Method = TypeVar("Method", bound=Callable[..., Any])

TRAINED_COLUMNS = ("prompts", "responses", LOG_PROBS, STORED_LOG_PROBS)
"""Columns of a rollout that the update reads."""


def num_ranks(worker_group: Any, mesh: str = "actor") -> int:
    """Return how many data-parallel ranks there are: those that share a sequence or a model's layers are one."""
    return max(_ranks(worker_group, mesh)) + 1


def _ranks(worker_group: Any, mesh: str) -> list[int]:
    known: dict[str, list[int]] = worker_group._dispatch_info
    if mesh not in known:
        known[mesh] = worker_group._query_dispatch_info(mesh)
    return known[mesh]


def _send(mesh: str, worker_group: Any, blocks: list[Block]) -> Any:
    return dispatch_nd_compute(_ranks(worker_group, mesh), len(blocks), worker_group, blocks)


def _receive(_worker_group: Any, answers: list[Any]) -> list[Any]:
    """Return the answers of those ranks that have the model's output, one a data-parallel rank."""
    return [answer for answer in answers if answer is not None]


def _by_block(mesh: str) -> Callable[[Method], Method]:
    """Return a decorator: a call with one block a rank returns one answer a rank."""
    decorate: Callable[[Method], Method] = register(
        dispatch_mode={"dispatch_fn": partial(_send, mesh), "collect_fn": _receive}
    )
    return decorate


class BlockWorker(ActorRolloutRefWorker):
    """Scores and trains blocks of rows."""

    @_by_block("actor")
    def score_block(self, block: Block) -> Answer | None:
        """Return log-probs and entropies under the current policy and, of rollouts, all that the driver reads."""
        queued = fetch_queued(block, ROLLOUT_COLUMNS)
        batch = read_block(block, queued)
        scored = self.compute_log_prob(batch)
        if scored is None:
            return None
        put_log_probs(block, scored[LOG_PROBS])
        return answer_scored(block, batch, scored, queued)

    @_by_block("actor")
    def score_block_without_adapters(self, block: Block) -> Answer | None:
        """Return log-probs under the model without its low-rank adapters."""
        return self._reference_scores(block, self.compute_log_prob)

    @_by_block("ref")
    def score_block_by_reference(self, block: Block) -> Answer | None:
        """Return log-probs under the initial policy."""
        return self._reference_scores(block, self.compute_ref_log_prob)

    @_by_block("actor")
    def train_block(self, block: Block) -> dict[str, Any] | None:
        """Take one optimizer step on all ranks' blocks and return verl's metrics."""
        queued = fetch_queued(block, TRAINED_COLUMNS)
        output = self.update_actor(read_block(block, queued, (LOG_PROBS, STORED_LOG_PROBS)))
        return None if output is None else get(output, "metrics")

    def _reference_scores(self, block: Block, score: Any) -> Answer | None:
        batch = read_block(block, fetch_queued(block, ("prompts", "responses")))
        scored = score(batch)
        return None if scored is None else scores_of(block, batch, scored, (LOG_PROBS,))
