"""Lists that are sorted over all rows and of which a page has the first: their order, in the address, and how many."""

from collections.abc import Collection, Hashable, Mapping

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.widgets import grid
from exgrpo.db.rows.sort_order import Key, SortOrder

PAGE_SIZE = 50
ADDRESS = "sort"
_PAGES = "pages-of-lists"


def order_of_address(keys: type[Key]) -> SortOrder[Key] | None:
    """Return the order in the address; None, newest first, where there is none."""
    return SortOrder.read(st.query_params.get(ADDRESS, ""), keys)


def heads(keys: type[Key]) -> dict[str, Key]:
    """Return the keys by the heads of the columns that sort by them, which are called like these."""
    return {key.capitalize(): key for key in keys}


def num_pages(listed: Hashable) -> int:
    """Return how many pages of a list this session displays."""
    pages: dict[Hashable, int] = st.session_state.setdefault(_PAGES, {})
    return pages.get(listed, 1)


def sorting(
    heads: Mapping[str, Key], order: SortOrder[Key] | None, listed: Hashable, num_rows: int,
    newest: str = "Id", words: Collection[str] = (),
) -> grid.Sorting:  # fmt: skip
    """Return how the table of the first of `num_rows` rows is sorted: a click on a head puts its key into the address.

    The head of column `newest` leads back to newest first; columns of `words` begin with the lowest. At the last row
    comes another page of what is `listed`.
    """

    def take(chosen: grid.Order) -> None:
        key = heads.get(chosen.column)
        address.put({ADDRESS: key and f"{'-' if chosen.is_descending else ''}{key}"})

    def show_more() -> None:
        st.session_state[_PAGES][listed] = num_pages(listed) + 1

    column = next((name for name, key in heads.items() if order and key is order.key), newest)
    return grid.Sorting(
        grid.Order(column, order is None or order.is_descending),
        {name: name not in words for name in [newest] * (order is not None) + [*heads]}, take, num_rows, show_more,
    )  # fmt: skip
