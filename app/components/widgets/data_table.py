"""Tables: with their downloads, with rows that open something on a click, and with numbers that are texts."""

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app import theme
from app.components.widgets import address_choice, exports
from app.formats import NONE_SHOWN

Columns = Mapping[str, ColumnConfig]
_MAX_NUMBER_ROWS = 30


def show(
    frame: pd.DataFrame, name: str, alt: str, columns: Columns | None = None, *, most: int | None = None,
    key: str | None = None,
) -> None:  # fmt: skip
    """Show a table and below it its downloads as files called `name`; of its rows `most` are seen at once."""
    st.dataframe(
        frame, key=key or f"table-{name}", hide_index=True, placeholder=NONE_SHOWN, column_config=columns, alt=alt,
        row_height=theme.ROW_HEIGHT, height=theme.table_height(len(frame), most),
    )  # fmt: skip
    exports.show(frame, name, key)


def show_card(
    title: str, frame: pd.DataFrame, name: str, alt: str, columns: Columns | None = None, note: str = ""
) -> None:
    """Show a whole table framed under its title and its downloads, with a note below it."""
    with st.container(border=True, gap="xxsmall", key=f"{name}-card"):
        exports.show_heading(title, frame, name)
        st.dataframe(
            frame, hide_index=True, placeholder=NONE_SHOWN, column_config=columns, alt=alt,
            row_height=theme.ROW_HEIGHT, height=theme.table_height(len(frame)),
        )  # fmt: skip
        if note:
            st.caption(note)


def choose(
    frame: pd.DataFrame, key: str, alt: str, opened: int | None, on_open: Callable[[int], None],
    columns: Columns | None = None, most: int = 12,
) -> None:  # fmt: skip
    """Show a table in which the row `opened` is selected; a click on another calls `on_open` with its index."""

    def take() -> None:
        row = address_choice.clicked_row(key, len(frame))
        if row is not None:
            on_open(row)

    address_choice.select_row(key, opened, str(frame.columns[0]))
    st.dataframe(
        frame, key=key, hide_index=True, placeholder=NONE_SHOWN, column_config=columns, alt=alt, on_select=take,
        selection_mode="single-cell", row_height=theme.ROW_HEIGHT, height=theme.table_height(len(frame), most),
    )  # fmt: skip


def pick(frame: pd.DataFrame, key: str, alt: str, columns: Columns | None = None, most: int = 12) -> int | None:
    """Show a table and return the index of the row that was clicked, for a page to leave for another."""
    event = st.dataframe(
        frame, key=key, hide_index=True, placeholder=NONE_SHOWN, column_config=columns, alt=alt, on_select="rerun",
        selection_mode="single-cell", row_height=theme.ROW_HEIGHT, height=theme.table_height(len(frame), most),
    )  # fmt: skip
    cells = event.selection.cells
    return cells[0][0] if cells and cells[0][0] < len(frame) else None


def show_tiles(figures: Sequence[tuple[str, str, str]]) -> None:
    """Show figures side by side, each as its label, value and what is below it."""
    for column, (label, value, below) in zip(st.columns(len(figures), gap="small"), figures, strict=True):
        column.metric(label, value, below, delta_color="off", delta_arrow="off", border=True, height="stretch")


def show_numbers(frame: pd.DataFrame, words: Collection[str], alt: str) -> None:
    """Show a table whose numbers are texts, such as a mean with its interval: right-aligned, except columns `words`."""
    columns = {str(name): st.column_config.Column(alignment="right") for name in frame if name not in words}
    st.dataframe(
        frame, hide_index=True, placeholder=NONE_SHOWN, column_config=columns, alt=alt, row_height=theme.ROW_HEIGHT,
        height=theme.table_height(len(frame), _MAX_NUMBER_ROWS),
    )  # fmt: skip


def key_of(name: str, ids: Sequence[object]) -> str:
    """Return the key of a table with these rows: a table of others must not keep the selection."""
    return f"{name}-{hashlib.sha256(repr(ids).encode()).hexdigest()[:16]}"
