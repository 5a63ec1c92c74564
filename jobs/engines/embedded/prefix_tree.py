"""Rows of tokens as a tree: tokens with the same history have the same hidden state, so each history is one node."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from exgrpo_core.types import BoolArray, Int32Array, Int64Array


@dataclass(frozen=True, slots=True)
class PrefixTree:
    """M distinct histories of B rows of at most T tokens.

    A history is a token and all that stands before it. `token_ids` (M,) is its last token, `positions` (M,) that
    token's place. `nodes` (B, T) is the history of each token of each row; it means nothing where `is_token` (B, T) is
    false, behind a row's end.
    """

    token_ids: Int64Array
    positions: Int64Array
    nodes: Int64Array
    is_token: BoolArray


def build_prefix_tree(rows: Sequence[Int32Array]) -> PrefixTree:
    """Return the tree of `rows`, none of them empty."""
    # Rows that begin alike stand side by side in the order of their bytes.
    order = sorted(range(len(rows)), key=[row.tobytes() for row in rows].__getitem__)
    lengths = np.array([rows[i].size for i in order], dtype=np.int64)
    is_token = np.arange(lengths.max()) < lengths[:, None]
    token_ids = np.full(is_token.shape, -1, dtype=np.int32)
    token_ids[is_token] = np.concatenate([rows[i] for i in order])
    is_new = is_token.copy()
    is_new[1:] &= ~np.logical_and.accumulate(token_ids[1:] == token_ids[:-1], axis=1)
    numbers = np.where(is_new, np.cumsum(is_new).reshape(is_new.shape) - 1, -1)
    back = np.argsort(order)
    return PrefixTree(
        token_ids=token_ids[is_new].astype(np.int64),
        positions=np.nonzero(is_new)[1],
        nodes=np.maximum.accumulate(numbers, axis=0)[back],
        is_token=is_token[back],
    )
