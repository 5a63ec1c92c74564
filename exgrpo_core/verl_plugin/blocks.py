"""The rows that driver and one rank exchange, as one block of a few arrays: row by row, messages take most of the time.

The driver makes blocks, a rank reads its block and answers by columns. Rollouts stay in TransferQueue, into which agent
loops put them: a block has their keys. Of other rows, stored trajectories above all, it has the tokens.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from tensordict import TensorDict
from verl.single_controller.base.decorator import Dispatch, dispatch_nd_compute, register
from verl.utils.tensordict_utils import assign_non_tensor_data, get
from verl.workers.engine_workers import ActorRolloutRefWorker

import exgrpo_core.verl_plugin.fsdp_engine
import exgrpo_core.verl_plugin.own_exchange  # noqa: F401 - both enter verl's registries in workers of this class
from exgrpo_core.types import BoolArray, Float32Array, Int64Array
from exgrpo_core.verl_plugin.rank_files import find_changed
from exgrpo_core.verl_plugin.rollout_queue import fetch_rows, put_column
from exgrpo_core.verl_plugin.rows import (
    CHECKSUMS,
    ENTROPIES,
    LOG_PROBS,
    ROLLOUT_COLUMNS,
    STORED_LOG_PROBS,
    QueuedRow,
    TokenRow,
    read_rollouts,
    token_checksums,
)
from exgrpo_core.verl_plugin.update import ROW

Answer = dict[str, Any]
"""Columns of a rank's rows, without those that pad: `JoinedRows`, or a list with one value a row."""


class JoinedRows(NamedTuple):
    """Rows of numbers, one after the other in one array, and the length of each."""

    values: NDArray[Any]
    lengths: NDArray[np.int64]

    @classmethod
    def join(cls, rows: Sequence[NDArray[Any]]) -> "JoinedRows":
        """Return the rows as one array."""
        lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
        return cls(np.concatenate(rows) if rows else np.empty(0, dtype=np.float32), lengths)

    def split(self) -> list[NDArray[Any]]:
        """Return the rows, as parts of the array."""
        ends = np.cumsum(self.lengths).tolist()
        return [self.values[start:end] for start, end in pairwise([0, *ends])]


@dataclass(frozen=True, slots=True)
class Block:
    """The rows of one rank, in the order in which it puts them into micro-batches."""

    keys: list[str]
    """Of the rows that are in TransferQueue."""
    is_queued: BoolArray
    is_in_loss: BoolArray
    whole: Mapping[str, JoinedRows]
    """Prompts, responses and stored log-probs of the rows that are not in TransferQueue."""
    columns: Mapping[str, JoinedRows]
    """What the driver decides of each row."""
    options: Mapping[str, Any]
    """What verl's worker reads next to the rows."""


def make_blocks(
    rows: Sequence[TokenRow | QueuedRow], num_ranks: int, columns: Sequence[str], options: Mapping[str, Any]
) -> tuple[list[Block], list[list[int]]]:
    """Return a block for each data-parallel rank, balanced by tokens, and the positions of its rows.

    All rows have the `columns`. Rows without tokens in the loss, at positions after the last, pad the ranks' shares, so
    any number of rows works on any number of ranks.
    """
    num_padding = -len(rows) % num_ranks if rows else num_ranks
    all_rows = [*rows, *[_padding_row(columns)] * num_padding]
    shares = deal([row.num_tokens for row in all_rows], num_ranks).tolist()
    return [_block([all_rows[position] for position in share], columns, options) for share in shares], shares


def deal(lengths: Sequence[int], num_ranks: int) -> Int64Array:
    """Return the positions of each rank's rows (ranks, rows), of about as many tokens in all, ascending.

    The longest rows left, one a rank, go to the ranks in the order of their tokens so far, the fewest first. The most
    loaded rank has at most .1% more than verl's partitions give it, at a hundredth of their time.
    """
    sizes = np.asarray(lengths, dtype=np.int64)
    sums = np.zeros(num_ranks, dtype=np.int64)
    rounds = np.argsort(-sizes, kind="stable").reshape(-1, num_ranks)
    shares = np.empty_like(rounds)
    for share, longest in zip(shares, rounds, strict=True):
        fewest = np.argsort(sums, kind="stable")
        share[fewest] = longest
        sums[fewest] += sizes[longest]
    return np.sort(shares.T, axis=1)


def in_given_order(shares: Sequence[Sequence[int]], answers: Sequence[Answer], num_rows: int) -> dict[str, list[Any]]:
    """Return the columns of all ranks' answers, each with one entry a row, in the order in which rows were given."""
    merged: dict[str, list[Any]] = {}
    for share, answer in zip(shares, answers, strict=True):
        positions = [position for position in share if position < num_rows]
        for name, column in answer.items():
            values = column.split() if isinstance(column, JoinedRows) else column
            entries = merged.setdefault(name, [None] * num_rows)
            for position, value in zip(positions, values, strict=True):
                entries[position] = value
    return merged


def read_block(block: Block, queued: Mapping[str, Sequence[torch.Tensor]], names: Sequence[str] = ()) -> TensorDict:
    """Return a block's rows as the batch that verl's engines read, with further columns of `queued` or `whole`.

    `queued` are the fetched columns of the rows that are in TransferQueue.
    """
    whole = {name: _tensors(joined) for name, joined in block.whole.items()}
    whole[LOG_PROBS] = [torch.zeros(len(p) + len(r)) for p, r in zip(whole["prompts"], whole["responses"], strict=True)]
    columns = {name: _in_order(block, queued.get(name, ()), whole[name]) for name in ("prompts", "responses", *names)}
    masks = [
        torch.full((len(response),), int(is_in_loss))
        for response, is_in_loss in zip(columns["responses"], block.is_in_loss.tolist(), strict=True)
    ]
    input_ids = [torch.cat(pair) for pair in zip(columns["prompts"], columns["responses"], strict=True)]
    columns |= {
        "input_ids": input_ids,
        "position_ids": [torch.arange(len(ids)) for ids in input_ids],
        "response_mask": masks,
        "loss_mask": [torch.ones_like(mask) for mask in masks],
    }
    columns |= {name: _tensors(joined) for name, joined in block.columns.items()}
    batch = TensorDict({name: _jagged(parts) for name, parts in columns.items()}, batch_size=[len(block.is_queued)])
    for name, value in block.options.items():
        assign_non_tensor_data(batch, name, value)
    return batch


def fetch_queued(block: Block, names: Sequence[str]) -> dict[str, list[Any]]:
    """Return columns of a block's rows that are in TransferQueue, one entry a row."""
    if not block.keys:
        return {}
    fetched = fetch_rows(block.keys, names)
    return {
        name: list(fetched[name].unbind() if isinstance(fetched[name], torch.Tensor) else fetched[name])
        for name in names
    }


def put_log_probs(block: Block, scores: torch.Tensor) -> None:
    """Put the log-probs of a block's rows next to those that are in TransferQueue, where the update reads them."""
    if block.keys:
        rows = [row for row, is_queued in zip(scores.unbind(), block.is_queued.tolist(), strict=True) if is_queued]
        put_column(block.keys, LOG_PROBS, _jagged(rows))


def scores_of(block: Block, batch: TensorDict, scored: TensorDict, names: Sequence[str]) -> Answer:
    """Return what a worker wrote for the response tokens of a block's rows, (T,) each.

    A worker writes one value a token of prompt and response, which is of the token after it.
    """
    lengths = [len(row) for row in batch["responses"].unbind()]
    return {
        name: _joined(
            block,
            [row[-count - 1 : -1] for row, count in zip(scored[name].unbind(), lengths, strict=True)],
            torch.float32,
        )
        for name in names
    }


def answer_scored(block: Block, batch: TensorDict, scored: TensorDict, queued: Mapping[str, Sequence[Any]]) -> Answer:
    """Return scores of a block's rows and, of rollouts, what agent loops and graders made of them, else tokens."""
    answer = scores_of(block, batch, scored, (LOG_PROBS, ENTROPIES))
    if not block.keys:
        tokens = (_joined(block, batch[name].unbind(), torch.int32).split() for name in ("prompts", "responses"))
        return answer | {CHECKSUMS: token_checksums(*tokens)}
    # Rounding of the logarithm may give a number just above 0.
    log_probs = answer[LOG_PROBS]
    answer[LOG_PROBS] = log_probs._replace(values=np.minimum(log_probs.values, np.float32(0.0)))
    rollouts: Answer = dict(read_rollouts(queued))
    joined = {name: JoinedRows.join(rollouts[name]) for name in ("responses", STORED_LOG_PROBS)}
    return answer | rollouts | joined


def answer_seen(block: Block, seen: Sequence[Mapping[str, Float32Array]]) -> Answer:
    """Return what a loss saw of the tokens of a block's rows; nothing if it kept nothing."""
    names = seen[0] if seen else ()
    return {name: _joined(block, [torch.from_numpy(row[name]) for row in seen], torch.float32) for name in names}


def _block(rows: Sequence[TokenRow | QueuedRow], columns: Sequence[str], options: Mapping[str, Any]) -> Block:
    whole = [row for row in rows if isinstance(row, TokenRow)]
    return Block(
        keys=[row.key for row in rows if isinstance(row, QueuedRow)],
        is_queued=np.array([isinstance(row, QueuedRow) for row in rows]),
        is_in_loss=np.array([isinstance(row, QueuedRow) or row.is_in_loss for row in rows]),
        whole={
            "prompts": JoinedRows.join([row.prompt_ids for row in whole]),
            "responses": JoinedRows.join([row.token_ids for row in whole]),
            STORED_LOG_PROBS: JoinedRows.join([row.stored_log_probs for row in whole]),
        },
        columns={name: JoinedRows.join([row.columns[name] for row in rows]) for name in columns},
        options=options,
    )


def _padding_row(columns: Sequence[str]) -> TokenRow:
    """Return a prompt and a response of one token, which is not in the loss."""
    token, number = np.zeros(1, dtype=np.int32), np.zeros(1, dtype=np.float32)
    return TokenRow(token, token, number, dict.fromkeys(columns, number), is_in_loss=False)


def _in_order(block: Block, queued: Sequence[torch.Tensor], whole: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    parts = {True: iter(queued), False: iter(whole)}
    return [next(parts[is_queued]) for is_queued in block.is_queued.tolist()]


def _joined(block: Block, rows: Sequence[torch.Tensor], dtype: torch.dtype) -> JoinedRows:
    """Return the rows without those that pad."""
    kept = zip(rows, block.is_in_loss.tolist(), strict=True)
    return JoinedRows.join([row.to(dtype).numpy() for row, is_in_loss in kept if is_in_loss])


def _tensors(joined: JoinedRows) -> list[torch.Tensor]:
    values = joined.values.astype(np.int64 if joined.values.dtype.kind == "i" else np.float32)
    return list(map(torch.from_numpy, joined._replace(values=values).split()))


def _jagged(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    column: torch.Tensor = torch.nested.as_nested_tensor(list(rows), layout=torch.jagged)
    return column


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


_by_rank: Callable[[Method], Method] = register(dispatch_mode=Dispatch.ONE_TO_ALL)


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
    def train_block(self, block: Block) -> tuple[dict[str, Any], Answer] | None:
        """Take one optimizer step on all ranks' blocks; return verl's metrics, and what the loss saw if it keeps it."""
        batch = read_block(block, fetch_queued(block, TRAINED_COLUMNS), (LOG_PROBS, STORED_LOG_PROBS))
        batch[ROW] = _jagged(torch.arange(len(block.is_queued)).unsqueeze(1).unbind())
        output, loss = self.update_actor(batch), self.actor.loss_fn
        seen, loss.seen = [loss.seen[place] for place in sorted(loss.seen)], {}
        return None if output is None else (get(output, "metrics"), answer_seen(block, seen))

    @_by_rank
    def find_changed(self, folder: str) -> list[str]:
        """Return which of this rank's files of a checkpoint differ from what was written."""
        return find_changed(Path(folder), self.world_size, self.rank)

    def _reference_scores(self, block: Block, score: Any) -> Answer | None:
        batch = read_block(block, fetch_queued(block, ("prompts", "responses")))
        scored = score(batch)
        return None if scored is None else scores_of(block, batch, scored, (LOG_PROBS,))
