"""Rows of tokens as a prefix tree: each distinct prefix is one node, since it has one hidden state."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exgrpo_core.types import BoolArray, Int32Array, Int64Array


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
