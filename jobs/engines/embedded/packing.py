"""Ragged sequences as one row of tokens: no matrix product computes padding, nor a shared prompt twice."""

from collections.abc import Iterable, Sequence
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
        """Tokens that go through the model if no other has this prompt: the last one predicts nothing that is asked."""
        return int(self.prompt_ids.size + self.token_ids.size) - 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of similar length that attend side by side: `num_rows` of `num_columns` slots from `start`."""

    start: int
    num_rows: int
    num_columns: int


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """B sequences as N input tokens, of which R predict a response token; an equal prompt stands there once.

    `response_index` (R,) are positions in the N, `target_ids` (R,) the tokens predicted there; responses stand in the
    order of the sequences. Attention sees whole rows, side by side in `groups`: `sources` (S,) is the input token of
    each of their slots, `slots` (N,) one slot of each input token. Slots behind the end of a row hold any token.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    response_index: torch.Tensor
    target_ids: torch.Tensor
    sources: torch.Tensor
    slots: torch.Tensor
    groups: tuple[RowGroup, ...]
    longest: int


def pack_sequences(sequences: Sequence[TokenSequence], device: torch.device) -> PackedSequences:
    """Lay distinct prompts end to end, then responses without their last tokens.

    Raises:
        ValueError: No sequence, an empty prompt or an empty response.
    """
    num_prompt = np.array([sequence.prompt_ids.size for sequence in sequences], dtype=np.int64)
    num_response = np.array([sequence.token_ids.size for sequence in sequences], dtype=np.int64)
    if not sequences or num_prompt.min() == 0 or num_response.min() == 0:
        raise ValueError("sequences: expected at least one, each with a prompt and a response of at least one token.")
    prompts, prompt_of_row = find_distinct(sequence.prompt_ids for sequence in sequences)
    pieces = [*prompts, *(sequence.token_ids[:-1] for sequence in sequences)]
    sizes = np.array([piece.size for piece in pieces], dtype=np.int64)
    starts = np.cumsum(sizes) - sizes
    prompt_starts = starts[: len(prompts)][prompt_of_row]
    response_starts = starts[len(prompts) :]

    lengths = num_prompt + num_response - 1
    row = np.repeat(np.arange(lengths.size), lengths)
    position = count_up(lengths)
    is_response = position >= num_prompt[row]
    source = np.where(is_response, (response_starts - num_prompt)[row], prompt_starts[row]) + position
    groups, row_starts, num_slots = _group_rows(lengths)
    sources = np.zeros(num_slots, dtype=np.int64)
    sources[row_starts[row] + position] = source
    slots = np.empty(sizes.sum(), dtype=np.int64)
    slots[source] = row_starts[row] + position
    positions = np.empty_like(slots)
    positions[source] = position
    return PackedSequences(
        input_ids=index_tensor(np.concatenate(pieces), device),
        positions=index_tensor(positions, device),
        response_index=index_tensor(source[position >= num_prompt[row] - 1], device),
        target_ids=index_tensor(np.concatenate([item.token_ids for item in sequences]), device),
        sources=index_tensor(sources, device),
        slots=index_tensor(slots, device),
        groups=tuple(groups),
        longest=int(lengths.max()),
    )


def find_distinct(prompts: Iterable[Int32Array]) -> tuple[list[Int32Array], Int64Array]:
    """Return each distinct prompt once, and for every prompt which of them it is."""
    numbers: dict[bytes, int] = {}
    distinct: list[Int32Array] = []
    owners = []
    for prompt in prompts:
        number = numbers.setdefault(prompt.tobytes(), len(distinct))
        if number == len(distinct):
            distinct.append(prompt)
        owners.append(number)
    return distinct, np.array(owners, dtype=np.int64)


def count_up(lengths: Int64Array) -> Int64Array:
    """Return 0, 1, ... up to each length, end to end."""
    return np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)


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


def index_tensor(values: Int64Array | Int32Array, device: torch.device) -> torch.Tensor:
    """Return an int64 tensor on `device`."""
    return torch.from_numpy(values.astype(np.int64, copy=False)).to(device)
