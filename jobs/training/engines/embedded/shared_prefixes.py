"""Rows with the same tokens so far: the model computes their common prefix once."""

from dataclasses import dataclass

import numpy as np
import torch

from exgrpo.jobs.training.engines.embedded.packing import index_tensor
from exgrpo.jobs.training.engines.embedded.sampling import SharedSampling
from exgrpo_core.types import BoolArray, Int64Array


@dataclass(frozen=True, slots=True)
class RowCopies:
    """Rows `sources` (k,) of the cache are copied to rows `targets` (k,); then it has `num_prefixes` rows in use.

    No target is a source.
    """

    sources: Int64Array
    targets: Int64Array
    num_prefixes: int


class SharedPrefixes:
    """Knows which of C distinct prefixes each of B rows continues, and forks a prefix where its rows draw differently.

    The cache has one row a prefix. `prefixes` (B,) is the prefix of each row, numbered from 0 in the order of their
    first rows. A finished row keeps its prefix until `keep_rows`, so C is at most B.

    Three rollouts of one prompt share prefix 0 and make draws 0, 1 and 2 from its distribution:

    >>> prefixes = SharedPrefixes(np.array([0, 0, 0]), vocabulary_size=10)
    >>> prefixes.locate_draws(torch.device("cpu"))
    SharedSampling(draw_index=tensor([0, 1, 2]), num_ranks=3)

    They draw 7, 5 and 7. The lowest token keeps the prefix: prefix 0 continues with 5 (row 1); prefix 1, a copy of
    prefix 0, continues with 7 (rows 0 and 2). Two rows at most share a prefix now, so each has two draws, of which
    row 1 leaves one unused:

    >>> is_done = np.array([False, False, False])
    >>> prefixes.fork(np.array([7, 5, 7]), is_done)
    (array([5, 7]), RowCopies(sources=array([0]), targets=array([1]), num_prefixes=2))
    >>> prefixes.locate_draws(torch.device("cpu"))
    SharedSampling(draw_index=tensor([2, 0, 3]), num_ranks=2)

    They draw 1, 4 and 2: prefix 2, a copy of prefix 1, continues with 2 (row 2). No two rows share a prefix any more.
    Sorted by prefix, the rows are 1, 0, 2, and from then on row i is prefix i:

    >>> prefixes.fork(np.array([1, 4, 2]), is_done)
    (array([4, 1, 2]), RowCopies(sources=array([1]), targets=array([2]), num_prefixes=3))
    >>> prefixes.all_forked
    True
    >>> prefixes.keep_rows(np.array([0, 1, 2]))[0].tolist(), prefixes.is_separate
    ([1, 0, 2], True)
    """

    def __init__(self, prefixes: Int64Array, vocabulary_size: int) -> None:
        self._prefixes = prefixes.copy()
        self._vocabulary_size = vocabulary_size
        self._rank_rows()
        self.all_forked = False
        """Whether the last `fork` left no two unfinished rows with one prefix; rows are not sorted by prefix yet."""
        self.is_separate = self._num_ranks == 1
        """Whether row i alone continues prefix i, which stays so."""

    def locate_draws(self, device: torch.device) -> SharedSampling | None:
        """Return which of the draws of all prefixes each row uses; None where no prefix is shared."""
        if self.is_separate:
            return None
        return SharedSampling(index_tensor(self._prefixes * self._num_ranks + self._ranks, device), self._num_ranks)

    def fork(self, token_ids: Int64Array, is_done: BoolArray) -> tuple[Int64Array, RowCopies]:
        """Append the next tokens (B,) of rows; return the next token (C,) of each prefix and the copies to make first.

        The token of a prefix that only finished rows have has no meaning.
        """
        # 1. A prefix and a token make a key; `children` are the distinct keys, sorted by prefix, then token.
        live = np.flatnonzero(~is_done)
        keys = self._prefixes[live] * self._vocabulary_size + token_ids[live]
        children, child_of = np.unique(keys, return_inverse=True)
        parents, next_ids = np.divmod(children, self._vocabulary_size)
        # 2. The first child of a parent keeps its number; each other child is a copy with a new number.
        is_copy = np.append(False, parents[1:] == parents[:-1])
        sources = parents[is_copy]
        prefixes = parents.copy()
        prefixes[is_copy] = self._num_prefixes + np.arange(sources.size)
        # 3. Each live row continues its child.
        self._prefixes[live] = prefixes[child_of]
        if sources.size:
            self._rank_rows()
        self.all_forked = children.size == live.size
        token_of_prefix = np.zeros(self._num_prefixes, dtype=np.int64)
        token_of_prefix[prefixes] = next_ids
        return token_of_prefix, RowCopies(sources, prefixes[is_copy], self._num_prefixes)

    def keep_rows(self, rows: Int64Array) -> tuple[Int64Array, RowCopies]:
        """Drop all but the rising `rows`; return their new order, and the copies that fill the gaps in the cache.

        Rows are then sorted by prefix: once all have forked, they are separate.
        """
        # 1. Prefixes numbered beyond the new count are copied to the numbers that dropped prefixes leave free.
        kept = rows if self.is_separate else np.unique(self._prefixes[rows])
        is_free = np.ones(kept.size, dtype=np.bool_)
        is_free[kept[kept < kept.size]] = False
        copies = RowCopies(kept[kept >= kept.size], np.flatnonzero(is_free), kept.size)
        if self.is_separate:
            order = np.arange(kept.size)
            order[copies.targets] = copies.sources
            return order, copies
        # 2. Rows get the new numbers of their prefixes and are sorted by them.
        renumbered = np.arange(self._num_prefixes)
        renumbered[copies.sources] = copies.targets
        order = np.argsort(renumbered[self._prefixes[rows]], kind="stable")
        rows = rows[order]
        self._prefixes = renumbered[self._prefixes[rows]]
        self._rank_rows()
        self.is_separate |= self.all_forked
        self.all_forked = False
        return rows, copies

    def _rank_rows(self) -> None:
        """Number the rows of each prefix from 0: `_ranks` (B,), below `_num_ranks`, the most rows of one prefix."""
        sizes = np.bincount(self._prefixes)
        begins = np.repeat(np.cumsum(sizes) - sizes, sizes)
        self._ranks = np.empty_like(self._prefixes)
        self._ranks[np.argsort(self._prefixes, kind="stable")] = np.arange(begins.size) - begins
        self._num_ranks = int(sizes.max())
        self._num_prefixes = sizes.size
