"""Rows of tokens in TransferQueue, through which driver and workers exchange trajectories.

What agent loops put there stays under its key: it is scored and trained where it is, and the driver fetches what the
algorithm reads, once. Rows that the driver has alone, stored trajectories above all, are put as a whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

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
    columns: Mapping[str, torch.Tensor] = field(default_factory=dict)
    is_in_loss: bool = True

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and response."""
        return int(self.prompt_ids.size + self.token_ids.size)

    def as_columns(self) -> dict[str, torch.Tensor]:
        """Return the row as verl's engines read it."""
        prompt = torch.from_numpy(self.prompt_ids.astype(np.int64))
        response = torch.from_numpy(self.token_ids.astype(np.int64))
        mask = torch.full_like(response, int(self.is_in_loss))
        return {
            "prompts": prompt,
            "responses": response,
            "input_ids": torch.cat([prompt, response]),
            "position_ids": torch.arange(self.num_tokens),
            "response_mask": mask,
            "loss_mask": torch.ones_like(response),
            **self.columns,
        }


@dataclass(frozen=True, slots=True)
class QueuedRow:
    """A row that is in TransferQueue already, with columns to add to it."""

    key: str
    num_tokens: int
    """Tokens of prompt and response."""
    columns: Mapping[str, torch.Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class QueuedRows:
    """Rows in TransferQueue: `meta` names them in the order of ranks, `keys` in the given order."""

    meta: KVBatchMeta
    keys: list[str]


def put_rows(rows: Sequence[TokenRow]) -> list[QueuedRow]:
    """Put rows under new keys, where they stay until they are cleared."""
    number = next(_numbers)
    queued = [QueuedRow(f"rows{number}-{position}", row.num_tokens) for position, row in enumerate(rows)]
    _put([row.key for row in queued], [row.as_columns() for row in rows])
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
        _put([row.key for row in kept], [row.columns for row in kept])
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


def of_response(values: torch.Tensor, num_tokens: int) -> Float32Array:
    """Return what workers wrote for the response's tokens (T,) of one value a token of prompt and response.

    A value is of the token after it.
    """
    response: Float32Array = values[-num_tokens - 1 : -1].float().numpy()
    return response


def clear_rows(keys: Sequence[str], partition: str = PARTITION) -> None:
    """Remove rows."""
    if keys:
        tq.kv_clear(keys=list(keys), partition_id=partition)


def check_tokens(what: str, expected: Int32Array, received: torch.Tensor) -> None:
    """Raise an `EngineError` unless token ids came back as they were sent."""
    if not np.array_equal(expected, received.numpy()):
        num_equal = int((expected[: received.numel()] == received.numpy()[: expected.size]).sum())
        raise EngineError(
            f"{what}: expected the {expected.size} token ids that were stored, got {received.numel()} of which "
            f"{num_equal} agree; token ids must not be made from text again."
        )


def _put(keys: Sequence[str], columns: Sequence[Mapping[str, torch.Tensor]]) -> None:
    if keys:
        fields = list_of_dict_to_tensordict([dict(row) for row in columns])
        tq.kv_batch_put(keys=list(keys), partition_id=PARTITION, fields=fields)


def _padding_row(columns: Sequence[str]) -> TokenRow:
    """Return a prompt and a response of one token, which is not in the loss."""
    token = np.zeros(1, dtype=np.int32)
    values = {name: torch.zeros(2 if name == LOG_PROBS else 1) for name in columns}
    return TokenRow(token, token, values, is_in_loss=False)
