"""Ragged sequences laid end to end, so that no matrix product computes padding."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import Int32Array, Int64Array

MAX_PADDING = 0.2
"""Attention pads rows of a group to its longest; a row shorter by more than this share opens a new group."""


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and the response tokens that are asked about."""

    prompt_ids: Int32Array
    token_ids: Int32Array

    @property
    def num_inputs(self) -> int:
        """Tokens that go through the model: the last one predicts nothing that is asked."""
        return int(self.prompt_ids.size + self.token_ids.size) - 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of similar length that attend side by side: `num_rows` of `num_columns` slots from `start`."""

    start: int
    num_rows: int
    num_columns: int


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """B sequences as N input tokens, of which R predict a response token.

    `response_index` (R,) are positions in the N, `target_ids` (R,) the tokens predicted there;
    responses stand in the order of the sequences. `slots` (N,) are places in the padded rows of
    `groups`, `num_slots` in all.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    response_index: torch.Tensor
    target_ids: torch.Tensor
    slots: torch.Tensor
    groups: tuple[RowGroup, ...]
    num_slots: int
    longest: int


def pack_sequences(sequences: Sequence[TokenSequence], device: torch.device) -> PackedSequences:
    """Lay sequences end to end.

    Raises:
        ValueError: No sequence, an empty prompt or an empty response.
    """
    num_prompt = np.array([sequence.prompt_ids.size for sequence in sequences], dtype=np.int64)
    num_response = np.array([sequence.token_ids.size for sequence in sequences], dtype=np.int64)
    if not sequences or num_prompt.min() == 0 or num_response.min() == 0:
        raise ValueError("sequences: expected at least one, each with a prompt and a response of at least one token.")
    lengths = num_prompt + num_response - 1
    offsets = np.cumsum(lengths) - lengths
    row = np.repeat(np.arange(lengths.size), lengths)
    positions = np.arange(lengths.sum()) - offsets[row]
    groups, row_starts, num_slots = _group_rows(lengths)
    parts = [part for item in sequences for part in (item.prompt_ids, item.token_ids[:-1])]
    return PackedSequences(
        input_ids=_tensor(np.concatenate(parts), device),
        positions=_tensor(positions, device),
        response_index=_tensor(np.flatnonzero(positions >= num_prompt[row] - 1), device),
        target_ids=_tensor(np.concatenate([item.token_ids for item in sequences]), device),
        slots=_tensor(row_starts[row] + positions, device),
        groups=tuple(groups),
        num_slots=num_slots,
        longest=int(lengths.max()),
    )


def _group_rows(lengths: Int64Array) -> tuple[list[RowGroup], Int64Array, int]:
    """Return groups of rows, longest first, the first slot of each row, and the number of slots."""
    order = np.argsort(-lengths, kind="stable")
    row_starts = np.empty_like(lengths)
    groups: list[RowGroup] = []
    start = first = 0
    while first < order.size:
        num_columns = int(lengths[order[first]])
        shortest = (1.0 - MAX_PADDING) * num_columns
        members = order[first:][lengths[order[first:]] >= shortest]
        row_starts[members] = start + num_columns * np.arange(members.size)
        groups.append(RowGroup(start, int(members.size), num_columns))
        start += num_columns * int(members.size)
        first += int(members.size)
    return groups, row_starts, start


def split_by_budget(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[int]]:
    """Split positions of `sequences` into batches of similar length, each of at most `max_tokens` inputs or one row."""
    order = sorted(range(len(sequences)), key=lambda i: -sequences[i].num_inputs)
    batches: list[list[int]] = []
    room = 0
    for i in order:
        needed = sequences[i].num_inputs
        if not batches or needed > room:
            batches.append([])
            room = max_tokens
        batches[-1].append(i)
        room -= needed
    return batches


def _tensor(values: Int64Array | Int32Array, device: torch.device) -> torch.Tensor:
    return torch.from_numpy(values.astype(np.int64, copy=False)).to(device)
