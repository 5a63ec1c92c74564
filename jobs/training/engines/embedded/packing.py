"""Ragged sequences as one row of tokens: no matrix product computes padding, nor a shared prefix twice."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from exgrpo_core.types import BoolArray, Int32Array, Int64Array

NUM_BLOCKS = 8
"""Blocks of columns in which rows of one length attend. More blocks compute fewer scores that the mask hides."""
MIN_COLUMNS = 24
"""Least columns of a block but the last: a narrower block costs more as a call than it saves."""

REPEATED_COST = 1 / 8
"""Memory of a prompt's token in each further sequence, as a share of that of a token: its copies as a key."""


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """M distinct prefixes of B rows of at most T tokens; a prefix is a token with all tokens before it.

    `token_ids` (M,) is the last token of each prefix and `positions` (M,) the column of that token. `nodes` (B, T) is
    the number of the prefix that ends at each token of each row. `is_token` (B, T) is false behind a row's end, where
    `nodes` has no meaning.
    """

    token_ids: Int64Array
    positions: Int64Array
    nodes: Int64Array
    is_token: BoolArray


def build_prefix_tree(rows: Sequence[Int32Array]) -> PrefixTree:
    """Return the tree of `rows`, none of them empty.

    Rows 0 and 2 share the prefixes "7" and "7 8", so nine tokens have seven distinct prefixes:

    >>> rows = [[7, 8, 1, 2], [9, 3], [7, 8, 6]]
    >>> tree = build_prefix_tree([np.array(row, dtype=np.int32) for row in rows])
    >>> tree.token_ids.tolist(), tree.positions.tolist()
    ([7, 8, 1, 2, 6, 9, 3], [0, 1, 2, 3, 2, 0, 1])
    >>> [nodes[: len(row)].tolist() for nodes, row in zip(tree.nodes, rows)]
    [[0, 1, 2, 3], [5, 6], [0, 1, 4]]
    """
    # 1. Sort the rows by their bytes (example: rows 0, 2, 1). A row then shares its longest prefix with the row above.
    order = sorted(range(len(rows)), key=[row.tobytes() for row in rows].__getitem__)
    # 2. Pad the sorted rows with -1 to (B, T).
    lengths = np.array([rows[i].size for i in order], dtype=np.int64)
    is_token = np.arange(lengths.max()) < lengths[:, None]
    token_ids = np.full(is_token.shape, -1, dtype=np.int32)
    token_ids[is_token] = np.concatenate([rows[i] for i in order])
    # 3. A token is new unless it and all before it equal the row above; & along a row is true up to the first
    #    difference. Example: TTTT, FFTF, TTFF.
    is_new = is_token.copy()
    is_new[1:] &= ~np.logical_and.accumulate(token_ids[1:] == token_ids[:-1], axis=1)
    # 4. Number the new tokens row by row, with -1 elsewhere. Numbers rise down a column, so the running maximum copies
    #    the number of a shared prefix from the row above. Example: 0123, 014., 56.. (a dot: no meaning).
    numbers = np.where(is_new, np.cumsum(is_new).reshape(is_new.shape) - 1, -1)
    # 5. Undo the sort.
    back = np.argsort(order)
    return PrefixTree(
        token_ids=token_ids[is_new].astype(np.int64),
        positions=np.nonzero(is_new)[1],
        nodes=np.maximum.accumulate(numbers, axis=0)[back],
        is_token=is_token[back],
    )


@dataclass(frozen=True, slots=True)
class TokenSequence:
    """A prompt and a response whose tokens are scored."""

    prompt_ids: Int32Array
    token_ids: Int32Array

    @property
    def num_inputs(self) -> int:
        """Tokens that go through the model if no prefix is shared: all but the last, which predicts nothing needed."""
        return int(self.prompt_ids.size + self.token_ids.size) - 1


@dataclass(frozen=True, slots=True)
class QueryBlock:
    """`num_rows` rows that attend in one call: the tokens in columns `first` to `end` - 1 of each row.

    Their keys are the tokens in columns 0 to `end` - 1 of the same row; a causal mask hides later columns.
    """

    num_rows: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class PackedSequences:
    """B sequences with R response tokens in all as N distinct input tokens and Q distinct target tokens.

    Tokens are distinct if they or the tokens before them differ. All arrays but the first two and `target_ids` are
    indexes:

    1. `input_ids` (N,) and `positions` (N,) are what goes through the model.
    2. `target_ids` (Q,) are the tokens to score, and `predictors` (Q,) the input token whose output predicts each.
    3. `responses` (R,) is the target of each response token, in the order of the sequences: scores (Q,) become (R,).
    4. `blocks` are calls of attention. Their queries are the input tokens `queries` (S,), block after block, row after
       row; `keys` (K,) likewise. `longest` is the number of columns.
    5. `slots` (N,) is the one of the S outputs that belongs to each input token. The other S - N outputs are discarded:
       they are behind the end of a row or repeat a shared token.

    Three sequences, the first and the last with the same prompt. Of ten tokens five are distinct inputs (7, 8 and 1 of
    the first sequence, 6 of the third, 9 of the second), since a sequence's last token is no input:

    >>> rows = [([7, 8], [1, 2]), ([9], [3]), ([7, 8], [6, 2])]
    >>> packed = pack_sequences(
    ...     [TokenSequence(np.array(prompt, np.int32), np.array(response, np.int32)) for prompt, response in rows],
    ...     torch.device("cpu"),
    ... )
    >>> packed.input_ids.tolist(), packed.positions.tolist()
    ([7, 8, 1, 6, 9], [0, 1, 2, 2, 0])
    >>> packed.target_ids.tolist(), packed.predictors.tolist()
    ([1, 2, 6, 2, 3], [1, 2, 1, 3, 4])
    >>> packed.responses.tolist()
    [0, 1, 4, 2, 3]

    One block holds all: sequence 0 is inputs 0, 1, 2; sequence 1 is input 4 and two columns of padding; sequence 2 is
    inputs 0, 1, 3, of which only 3 is not computed in sequence 0. Input 3 is thus at slot 8, input 4 at slot 3:

    >>> packed.blocks, packed.queries.tolist(), packed.slots.tolist()
    ((QueryBlock(num_rows=3, first=0, end=3),), [0, 1, 2, 4, 0, 0, 0, 1, 3], [0, 1, 2, 8, 3])
    >>> packed.keys.tolist() == packed.queries.tolist()
    True
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
    """Return `sequences` with each distinct prefix once.

    Raises:
        ValueError: No sequence, an empty prompt or an empty response.
    """
    num_prompt = np.array([sequence.prompt_ids.size for sequence in sequences], dtype=np.int64)
    num_response = np.array([sequence.token_ids.size for sequence in sequences], dtype=np.int64)
    if not sequences or num_prompt.min() == 0 or num_response.min() == 0:
        raise ValueError("sequences: expected at least one, each with a prompt and a response of at least one token.")
    tree = build_prefix_tree([np.concatenate([item.prompt_ids, item.token_ids]) for item in sequences])
    # 1. Inputs are the nodes of the tree except those that only end sequences; `input_of` (M,) renumbers nodes.
    num_inputs = num_prompt + num_response - 1
    row, column = np.nonzero(tree.is_token)
    node = tree.nodes[row, column]
    is_input = column < num_inputs[row]
    inputs, input_of = _number(node[is_input], tree.token_ids.size)

    # 2. `input_at` (B, T) is the input token in each column of each sequence, 0 behind its end.
    input_at = np.zeros_like(tree.nodes)
    input_at[row[is_input], column[is_input]] = input_of[node[is_input]]
    blocks, queries, keys, slots = _block_columns(input_at, num_inputs, inputs.size)

    # 3. Targets are the nodes of response tokens. The token before a response token, in the same sequence, predicts it.
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
    """Return the distinct `nodes` in rising order, and (M,) the index of each node among them."""
    is_used = np.zeros(num_nodes, dtype=np.bool_)
    is_used[nodes] = True
    return np.flatnonzero(is_used), np.cumsum(is_used) - 1


def _block_columns(
    input_at: Int64Array, num_inputs: Int64Array, num_distinct: int
) -> tuple[list[QueryBlock], Int64Array, Int64Array, Int64Array]:
    """Return blocks, queries, keys and slots of rows whose tokens are the inputs `input_at` (B, T).

    With blocks of two columns the example of `PackedSequences` has two: rows 0 and 1 in columns 0 and 1, then rows 0
    and 2 in column 2. Row 2 is not in the first, since row 0 computes its tokens there.
    """
    # 1. `is_first` (B, T): the row computes the token in this column; for a shared token the first row does.
    is_first = _first_occurrences(input_at, num_inputs, num_distinct)
    lengths = np.sort(num_inputs[is_first.any(axis=1)])
    longest = is_first.shape[1]
    blocks: list[QueryBlock] = []
    queries: list[Int64Array] = []
    keys: list[Int64Array] = []
    slots = np.empty(num_distinct, dtype=np.int64)
    begin = num_slots = 0
    while begin < longest:
        # 2. The median of the rows that reach the block decides its width: few long rows do not pad many short ones.
        remaining = lengths[lengths > begin]
        width = max(MIN_COLUMNS, -(-int(remaining[remaining.size // 2]) // NUM_BLOCKS))
        end = min(begin + width, longest)
        # 3. `members` are the rows that compute a token in these columns; only they are in the block.
        rows, columns = np.nonzero(is_first[:, begin:end])
        members, member_of = np.unique(rows, return_inverse=True)
        # 4. The block's outputs are its members' columns row by row, after those of the blocks before.
        slots[input_at[rows, begin + columns]] = num_slots + member_of * (end - begin) + columns
        num_slots += members.size * (end - begin)
        blocks.append(QueryBlock(int(members.size), begin, end))
        queries.append(input_at[members, begin:end].ravel())
        keys.append(input_at[members, :end].ravel())
        begin = end
    return blocks, np.concatenate(queries), np.concatenate(keys), slots


def _first_occurrences(input_at: Int64Array, num_inputs: Int64Array, num_distinct: int) -> BoolArray:
    """Return where (B, longest row) a row has a token that no row before it has; each column has at least one."""
    row, column = np.nonzero(np.arange(num_inputs.max()) < num_inputs[:, None])
    inputs = input_at[row, column]
    first_row = np.empty(num_distinct, dtype=np.int64)
    first_row[inputs[::-1]] = row[::-1]  # of rows that share a token the first is written last
    is_first = np.zeros((num_inputs.size, int(num_inputs.max())), dtype=np.bool_)
    is_first[row, column] = first_row[inputs] == row
    return is_first


def split_by_length(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[int]]:
    """Return indexes of `sequences` in batches of similar length, each at most `max_tokens` inputs or one sequence."""
    return _split(sequences, _longest_first(range(len(sequences)), sequences), max_tokens, repeated_cost=1.0)


def split_by_prompt(sequences: Sequence[TokenSequence], max_tokens: int) -> list[list[int]]:
    """Return indexes of `sequences` in batches that keep equal prompts together, longest first in each.

    A batch has at most `max_tokens` inputs, of which a prompt that is in it already counts `REPEATED_COST`, or one
    sequence.
    """
    of_prompt: dict[bytes, list[int]] = {}
    for i in _longest_first(range(len(sequences)), sequences):
        of_prompt.setdefault(sequences[i].prompt_ids.tobytes(), []).append(i)
    order = [i for members in of_prompt.values() for i in members]
    batches = _split(sequences, order, max_tokens, REPEATED_COST)
    return [_longest_first(sorted(batch), sequences) for batch in batches]


def _longest_first(indexes: Sequence[int], sequences: Sequence[TokenSequence]) -> list[int]:
    return sorted(indexes, key=lambda i: -sequences[i].num_inputs)


def _split(
    sequences: Sequence[TokenSequence], order: Sequence[int], max_tokens: int, repeated_cost: float
) -> list[list[int]]:
    """Fill one batch after another in this order."""
    batches: list[list[int]] = []
    tokens_left = 0.0
    previous = b""
    for i in order:
        needed, prompt = float(sequences[i].num_inputs), sequences[i].prompt_ids.tobytes()
        if prompt == previous:
            needed -= (1.0 - repeated_cost) * sequences[i].prompt_ids.size
        if not batches or needed > tokens_left:
            batches.append([])
            tokens_left, needed = float(max_tokens), float(sequences[i].num_inputs)
        batches[-1].append(i)
        tokens_left -= needed
        previous = prompt
    return batches


def index_tensor(values: Int64Array | Int32Array, device: torch.device) -> torch.Tensor:
    """Return an int64 tensor on `device`."""
    return torch.from_numpy(values.astype(np.int64, copy=False)).to(device)
