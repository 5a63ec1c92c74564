"""Rows of tokens in TransferQueue, through which driver and workers exchange trajectories.

What agent loops put there stays under its key: it is scored and trained where it is, and the driver fetches what the
algorithm reads, once. Rows that the driver has alone, stored trajectories above all, are put as a whole.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count, pairwise
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from numpy.typing import NDArray
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions

from exgrpo_core.errors import EngineError
from exgrpo_core.types import Float32Array, Int32Array

PARTITION = "train"
"""The partition into which verl's agent loops put training rollouts."""
SEQUENCE_COLUMNS = ("prompts", "responses", "input_ids", "position_ids", "response_mask", "loss_mask")
"""Columns that verl's engines read; agent loops put them too."""
LOG_PROBS, ENTROPIES = "log_probs", "entropy"
"""Columns that workers write when they score, one value a token of prompt and response."""
STORED_LOG_PROBS = "rollout_log_probs"
"""Log-probs of whatever drew the response, one a response token: the sampler, or the policy of a stored trajectory."""
_numbers = count()


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A prompt (P,) and a response (T,) to put, with further float columns."""

    prompt_ids: Int32Array
    token_ids: Int32Array
    columns: Mapping[str, Float32Array] = field(default_factory=dict)
    is_in_loss: bool = True

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and response."""
        return int(self.prompt_ids.size + self.token_ids.size)


@dataclass(frozen=True, slots=True)
class QueuedRow:
    """A row that is in TransferQueue already, with columns to add to it."""

    key: str
    num_tokens: int
    """Tokens of prompt and response."""
    columns: Mapping[str, Float32Array] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueuedRows:
    """Rows in TransferQueue: `meta` names them in the order of ranks, `keys` in the given order."""

    meta: KVBatchMeta
    keys: list[str]


def put_rows(rows: Sequence[TokenRow]) -> list[QueuedRow]:
    """Put rows under new keys, where they stay until they are cleared."""
    number = next(_numbers)
    queued = [QueuedRow(f"rows{number}-{position}", row.num_tokens) for position, row in enumerate(rows)]
    _put([row.key for row in queued], _sequence_columns(rows) | _further_columns(rows))
    return queued


@contextmanager
def queue_rows(
    rows: Sequence[TokenRow | QueuedRow], num_ranks: int, columns: Sequence[str] = ()
) -> Iterator[QueuedRows]:
    """Describe rows to workers, balanced by tokens over data-parallel ranks; what had to be put is removed afterwards.

    All rows have the `columns` beside those of the sequence. Rows without tokens in the loss pad the ranks' shares, so
    any number of rows works on any number of ranks.
    """
    num_padding = -len(rows) % num_ranks if rows else num_ranks
    whole = [row for row in rows if isinstance(row, TokenRow)] + [_padding_row(columns)] * num_padding
    put = put_rows(whole)
    try:
        news = iter(put)
        all_rows = [row if isinstance(row, QueuedRow) else next(news) for row in rows]
        all_rows += news
        kept = [row for row in rows if isinstance(row, QueuedRow) and row.columns]
        _put([row.key for row in kept], _further_columns(kept))
        lengths = [row.num_tokens for row in all_rows]
        shares = get_seqlen_balanced_partitions(lengths, k_partitions=num_ranks, equal_size=True)
        keys = [all_rows[position].key for share in shares for position in share]
        # Workers fetch the columns that this description names, and no others.
        meta = KVBatchMeta(keys, [{}] * len(keys), PARTITION, [*SEQUENCE_COLUMNS, *columns])
        yield QueuedRows(meta, [row.key for row in all_rows[: len(rows)]])
    finally:
        clear_rows([row.key for row in put])


def fetch_rows(keys: Sequence[str], names: Sequence[str], partition: str = PARTITION) -> Any:
    """Return columns of rows, in the order of their keys."""
    return tq.kv_batch_get(keys=list(keys), partition_id=partition, select_fields=list(names))


def split_rows(column: Any, dtype: torch.dtype) -> list[NDArray[Any]]:
    """Return the rows (T,) of a fetched column, jagged or of equal rows, as parts of one array."""
    offsets = column.offsets() if column.is_nested else torch.arange(len(column) + 1) * column[0].numel()
    values = (column.values() if column.is_nested else column.reshape(-1)).to(dtype).numpy()
    return [values[start:end] for start, end in pairwise(offsets.tolist())]


def split_responses(column: torch.Tensor, num_tokens: Sequence[int]) -> list[Float32Array]:
    """Return what workers wrote for the tokens of each response (T,) of one value a token of prompt and response.

    A value is of the token after it.
    """
    rows = split_rows(column, torch.float32)
    return [values[-count - 1 : -1] for values, count in zip(rows, num_tokens, strict=True)]


def clear_rows(keys: Sequence[str], partition: str = PARTITION) -> None:
    """Remove rows."""
    if keys:
        tq.kv_clear(keys=list(keys), partition_id=partition)


def check_tokens(expected: Sequence[Int32Array], column: torch.Tensor, describe: Callable[[int], str]) -> None:
    """Raise an `EngineError`, which describes the row, unless a column's token ids are as they were sent."""
    received = split_rows(column, torch.int64)
    lengths = [list(map(len, rows)) for rows in (expected, received)]
    if lengths[0] == lengths[1] and np.array_equal(np.concatenate(expected), np.concatenate(received)):
        return
    for position, (sent, back) in enumerate(zip(expected, received, strict=True)):
        if not np.array_equal(sent, back):
            num_equal = int((sent[: back.size] == back[: sent.size]).sum())
            raise EngineError(
                f"{describe(position)}: expected the {sent.size} token ids that were stored, got {back.size} of which "
                f"{num_equal} agree; token ids must not be made from text again."
            )


def _sequence_columns(rows: Sequence[TokenRow]) -> dict[str, list[NDArray[Any]]]:
    """Return the columns that verl's engines read."""
    masks = [np.full(row.token_ids.size, int(row.is_in_loss)) for row in rows]
    return {
        "prompts": [row.prompt_ids for row in rows],
        "responses": [row.token_ids for row in rows],
        "input_ids": [np.concatenate([row.prompt_ids, row.token_ids]) for row in rows],
        "position_ids": [np.arange(row.num_tokens) for row in rows],
        "response_mask": masks,
        "loss_mask": [np.ones_like(mask) for mask in masks],
    }


def _further_columns(rows: Sequence[TokenRow | QueuedRow]) -> dict[str, list[Float32Array]]:
    return {name: [row.columns[name] for row in rows] for name in (rows[0].columns if rows else ())}


def _put(keys: Sequence[str], columns: Mapping[str, Sequence[NDArray[Any]]]) -> None:
    if keys:
        fields = TensorDict({name: _join_rows(parts) for name, parts in columns.items()}, batch_size=[len(keys)])
        tq.kv_batch_put(keys=list(keys), partition_id=PARTITION, fields=fields)


def _join_rows(rows: Sequence[NDArray[Any]]) -> torch.Tensor:
    """Return rows of whole numbers or floats as one column, made at once: a tensor a row takes most of the time."""
    values = np.concatenate(rows)
    tensor = torch.from_numpy(values.astype(np.int64 if values.dtype.kind == "i" else np.float32))
    lengths = np.fromiter(map(len, rows), dtype=np.int64, count=len(rows))
    if (lengths == lengths[0]).all():
        return tensor.reshape(len(rows), -1)
    offsets = torch.from_numpy(np.append(0, np.cumsum(lengths)))
    column: torch.Tensor = torch.nested.nested_tensor_from_jagged(tensor, offsets)
    return column


def _padding_row(columns: Sequence[str]) -> TokenRow:
    """Return a prompt and a response of one token, which is not in the loss."""
    token = np.zeros(1, dtype=np.int32)
    values = {name: np.zeros(2 if name == LOG_PROBS else 1, dtype=np.float32) for name in columns}
    return TokenRow(token, token, values, is_in_loss=False)
