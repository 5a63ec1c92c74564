"""Ragged sequences as one row of tokens: no matrix product computes padding, nor a shared beginning twice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import BoolArray, Int32Array, Int64Array
from jobs.engines.embedded.prefix_tree import build_prefix_tree

NUM_BLOCKS = 8
"""Attention takes rows of one length in so many blocks of columns: the more, the fewer keys that no query may see."""
MIN_COLUMNS = 24
"""Least columns of a block but the last; narrower ones are not worth a call."""


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
class QueryBlock:
    """Rows that attend side by side: `num_rows` of them, with the tokens in columns `first` to `end` - 1.

    They attend to columns 0 to `end` - 1 of their rows.
    """

    num_rows: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """B sequences as N input tokens; tokens with the same history stand there once.

    Of all R response tokens Q differ in themselves or their history: `target_ids` (Q,), predicted at the input tokens
    `predictors` (Q,). `responses` (R,) says which of them each response token is, in the order of the sequences.
    Each input token attends once, in the `blocks`, where `queries` (S,) are the input tokens that do and `keys` (K,)
    those that they attend to, row by row; `slots` (N,) are the places among the S where each input token does. Places
    behind the end of a row, and of tokens that attend elsewhere, hold any token.
    """

    input_ids: torch.Tensor
    positions: torch.Tensor
    predictors: torch.Tensor
    target_ids: torch.Tensor
    responses: torch.Tensor
    queries: torch.Tensor
    keys: torch.Tensor
    slots: torch.Tensor
    blocks: tuple[QueryBlock, ...]
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
    tree = build_prefix_tree([np.concatenate([item.prompt_ids, item.token_ids]) for item in sequences])
    num_inputs = num_prompt + num_response - 1
    row, column = np.nonzero(tree.is_token)
    node = tree.nodes[row, column]
    is_input = column < num_inputs[row]
    inputs, input_of = _number(node[is_input], tree.token_ids.size)

    input_at = np.zeros_like(tree.nodes)
    input_at[row[is_input], column[is_input]] = input_of[node[is_input]]
    blocks, queries, keys, slots = _block_columns(input_at, num_inputs, inputs.size)

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
        queries=index_tensor(queries, device),
        keys=index_tensor(keys, device),
        slots=index_tensor(slots, device),
        blocks=tuple(blocks),
        longest=int(num_inputs.max()),
    )


def _number(nodes: Int64Array, num_nodes: int) -> tuple[Int64Array, Int64Array]:
    """Return the distinct ones of `nodes`, in order, and the place of each among them, by node."""
    is_there = np.zeros(num_nodes, dtype=np.bool_)
    is_there[nodes] = True
    return np.flatnonzero(is_there), np.cumsum(is_there) - 1


def _block_columns(
    input_at: Int64Array, num_inputs: Int64Array, num_distinct: int
) -> tuple[list[QueryBlock], Int64Array, Int64Array, Int64Array]:
    """Return blocks, queries, keys and slots of rows whose tokens are the inputs `input_at` (B, T).

    A block is as wide as suits the median of the rows that reach it, so that few long ones do not pad many short.
    """
    is_own = _own_columns(input_at, num_inputs, num_distinct)
    own_ends = np.sort(num_inputs[is_own.any(axis=1)])
    longest = is_own.shape[1]
    blocks: list[QueryBlock] = []
    queries: list[Int64Array] = []
    keys: list[Int64Array] = []
    slots = np.empty(num_distinct, dtype=np.int64)
    begin = num_slots = 0
    while begin < longest:
        ends = own_ends[own_ends > begin]
        width = max(MIN_COLUMNS, -(-int(ends[ends.size // 2]) // NUM_BLOCKS))
        end = min(begin + width, longest)
        rows, columns = np.nonzero(is_own[:, begin:end])
        members, member_of = np.unique(rows, return_inverse=True)
        slots[input_at[rows, begin + columns]] = num_slots + member_of * (end - begin) + columns
        num_slots += members.size * (end - begin)
        blocks.append(QueryBlock(int(members.size), begin, end))
        queries.append(input_at[members, begin:end].ravel())
        keys.append(input_at[members, :end].ravel())
        begin = end
    return blocks, np.concatenate(queries), np.concatenate(keys), slots


def _own_columns(input_at: Int64Array, num_inputs: Int64Array, num_distinct: int) -> BoolArray:
    """Return where (B, longest row) a row has a token that no row before it has; some row has one in each column."""
    row, column = np.nonzero(np.arange(num_inputs.max()) < num_inputs[:, None])
    inputs = input_at[row, column]
    first_row = np.empty(num_distinct, dtype=np.int64)
    first_row[inputs[::-1]] = row[::-1]  # of rows that share a token the first is written last
    is_own = np.zeros((num_inputs.size, int(num_inputs.max())), dtype=np.bool_)
    is_own[row, column] = first_row[inputs] == row
    return is_own


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
