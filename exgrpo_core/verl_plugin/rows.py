"""Rows of tokens in TransferQueue, through which driver and workers exchange trajectories."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch
import transfer_queue as tq
from transfer_queue import KVBatchMeta
from verl.utils.seqlen_balancing import get_seqlen_balanced_partitions
from verl.utils.tensordict_utils import list_of_dict_to_tensordict

from exgrpo_core.errors import EngineError
from exgrpo_core.types import Float32Array, Int32Array

PARTITION = "exgrpo_rows"
_numbers = count()


@dataclass(frozen=True, slots=True)
class TokenRow:
    """A prompt (P,) and a response (T,), with further columns of one value a response token."""

    prompt_ids: Int32Array
    token_ids: Int32Array
    columns: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def num_tokens(self) -> int:
        """Tokens of prompt and response."""
        return int(self.prompt_ids.size + self.token_ids.size)

    def with_column(self, name: str, values: Float32Array) -> "TokenRow":
        """Return this row with one more column."""
        return TokenRow(self.prompt_ids, self.token_ids, self.columns | {name: torch.from_numpy(values)})

    def without_loss(self) -> "TokenRow":
        """Return this row with no token in the loss."""
        return TokenRow(self.prompt_ids, self.token_ids, self.columns | {"response_mask": self._no_token()})

    def counted(self, name: str) -> torch.Tensor:
        """Return a column's values of the tokens in the loss."""
        return self.columns[name][: 0 if "response_mask" in self.columns else None]

    def _no_token(self) -> torch.Tensor:
        return torch.zeros(self.token_ids.size, dtype=torch.int64)

    def as_columns(self) -> dict[str, torch.Tensor]:
        """Return the row as verl's engines read it."""
        prompt = torch.from_numpy(self.prompt_ids.astype(np.int64))
        response = torch.from_numpy(self.token_ids.astype(np.int64))
        mask = torch.ones_like(response)
        return {
            "prompts": prompt,
            "responses": response,
            "input_ids": torch.cat([prompt, response]),
            "position_ids": torch.arange(self.num_tokens),
            "response_mask": mask,
            "loss_mask": mask,
            **self.columns,
        }


@dataclass(frozen=True, slots=True)
class QueuedRows:
    """Rows in TransferQueue: `meta` names them in the order of ranks, `keys` in the given order."""

    meta: KVBatchMeta
    keys: list[str]


@contextmanager
def queue_rows(rows: Sequence[TokenRow], num_ranks: int) -> Iterator[QueuedRows]:
    """Put rows into TransferQueue, balanced by tokens over data-parallel ranks, and remove them afterwards.

    Rows without tokens in the loss pad the ranks' shares, so any number of rows works on any number of ranks.
    """
    padding = [rows[-1].without_loss()] * (-len(rows) % num_ranks)
    all_rows = [*rows, *padding]
    number = next(_numbers)
    keys = [f"rows{number}-{position}" for position in range(len(all_rows))]
    lengths = [row.num_tokens for row in all_rows]
    shares = get_seqlen_balanced_partitions(lengths, k_partitions=num_ranks, equal_size=True)
    order = [position for share in shares for position in share]
    fields = list_of_dict_to_tensordict([all_rows[position].as_columns() for position in order])
    tags = [{"seq_len": lengths[position]} for position in order]
    ordered_keys = [keys[position] for position in order]
    # Workers fetch the columns that this description names, and no others.
    meta = tq.kv_batch_put(keys=ordered_keys, partition_id=PARTITION, fields=fields, tags=tags)
    try:
        yield QueuedRows(meta, keys[: len(rows)])
    finally:
        tq.kv_clear(keys=ordered_keys, partition_id=PARTITION)


def fetch_response_values(
    queued: QueuedRows, rows: Sequence[TokenRow], names: Sequence[str]
) -> dict[str, list[Float32Array]]:
    """Return columns that workers wrote for every token, cut to the response: one array (T,) a row.

    Raises:
        EngineError: The workers scored other tokens than those of the rows.
    """
    fetched = tq.kv_batch_get(keys=queued.keys, partition_id=PARTITION, select_fields=["input_ids", *names])
    for position, (row, input_ids) in enumerate(zip(rows, fetched["input_ids"].unbind(), strict=True)):
        check_tokens(f"row {position} of {len(rows)}", np.concatenate([row.prompt_ids, row.token_ids]), input_ids)
    return {
        name: [
            values[row.prompt_ids.size - 1 : -1].float().numpy()
            for row, values in zip(rows, fetched[name].unbind(), strict=True)
        ]
        for name in names
    }


def check_tokens(what: str, expected: Int32Array, received: torch.Tensor) -> None:
    """Raise an `EngineError` unless token ids came back as they were sent."""
    if not np.array_equal(expected, received.numpy()):
        num_equal = int((expected[: received.numel()] == received.numpy()[: expected.size]).sum())
        raise EngineError(
            f"{what}: expected the {expected.size} token ids that were stored, got {received.numel()} of which "
            f"{num_equal} agree; token ids must not be made from text again."
        )
