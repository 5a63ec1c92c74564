"""Ragged sequences as one row of tokens: no matrix product computes padding, nor a shared beginning twice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import Int32Array, Int64Array
from jobs.engines.embedded.prefix_tree import build_prefix_tree

MAX_PADDING = 0.2
"""Attention pads rows of a group to its longest; a row shorter by more than this share opens a new group."""


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and the response tokens that are asked about."""

    prompt_ids: Int32Array
    token_ids: Int32Array

    @property
    def num_inputs(self) -> int:
        """Tokens that go through the model if no other begins alike: the last one predicts nothing that is asked."""
        return int(self.prompt_ids.size + self.token_ids.size) - 1


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Rows of similar length that attend side by side: `num_rows` of `num_columns` slots from `start`."""

    start: int
    num_rows: int
    num_columns: int


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """B sequences as N input tokens; tokens with the same history stand there once.

    Of all R response tokens Q differ in themselves or their history: `target_ids` (Q,), predicted at the input tokens
    `predictors` (Q,). `responses` (R,) says which of them each response token is, in the order of the sequences.
    Attention sees whole rows, side by side in `groups`: `sources` (S,) is the input token of each of their slots,
    `slots` (N,) one slot of each input token. Slots behind the end of a row hold any token.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    predictors: torch.Tensor
    target_ids: torch.Tensor
    responses: torch.Tensor
    sources: torch.Tensor
    slots: torch.Tensor
    groups: tuple[RowGroup, ...]
    longest: int


def pack_sequences(sequences: Sequence[TokenSequence], device: torch.device) -> PackedSequences:
    """Lay the distinct histories of all tokens but the sequences' last ones end to end.

    Raises:
        ValueError: No sequence, an empty prompt or an empty response.
    """
    num_prompt = np.array([sequence.prompt_ids.size for sequence in sequences], dtype=np.int64)
    num_response = np.array([sequence.token_ids.size for sequence in sequences], dtype=np.int64)
    if not sequences or num_prompt.min() == 0 or num_response.min() == 0:
        raise ValueError("sequences: expected at least one, each with a prompt and a response of at least one token.")
    tree = build_prefix_tree([np.concatenate([own.prompt_ids, own.token_ids]) for own in sequences])
    num_inputs = num_prompt + num_response - 1
    row, column = np.nonzero(tree.is_token)
    node = tree.nodes[row, column]
    is_input = column < num_inputs[row]
    inputs, input_of = _number(node[is_input], tree.token_ids.size)

    groups, row_starts, num_slots = _group_rows(num_inputs)
    own_slots = (row_starts[row] + column)[is_input]
    sources = np.zeros(num_slots, dtype=np.int64)
    sources[own_slots] = input_of[node[is_input]]
    slots = np.empty_like(inputs)
    slots[input_of[node[is_input]]] = own_slots

    is_response = np.flatnonzero(column >= num_prompt[row])
    targets, target_of = _number(node[is_response], tree.token_ids.size)
    responses = target_of[node[is_response]]
    predictors = np.empty_like(targets)
    predictors[responses] = input_of[node[is_response - 1]]
    return PackedSequences(
        input_ids=index_tensor(tree.token_ids[inputs], device),
        positions=index_tensor(tree.positions[inputs], device),
        predictors=index_tensor(predictors, device),
        target_ids=index_tensor(tree.token_ids[targets], device),
        responses=index_tensor(responses, device),
        sources=index_tensor(sources, device),
        slots=index_tensor(slots, device),
        groups=tuple(groups),
        longest=int(num_inputs.max()),
    )


def _number(nodes: Int64Array, num_nodes: int) -> tuple[Int64Array, Int64Array]:
    """Return the distinct ones of `nodes`, in order, and the place of each among them, by node."""
    is_there = np.zeros(num_nodes, dtype=np.bool_)
    is_there[nodes] = True
    return np.flatnonzero(is_there), np.cumsum(is_there) - 1


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
