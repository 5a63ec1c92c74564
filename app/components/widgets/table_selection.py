"""The row that stands in the address, marked in the table whose clicks write it there."""

from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from streamlit.elements.arrow import DataframeState, DataframeStateInput


def mark(key: str, row: int | None, column: str) -> None:
    """Mark the row at this place of the table with this key, in a column, or none; to be called before it is drawn.

    A click on what is marked says nothing to the server: a row that was closed could not be opened again.
    """
    if _marked(key) != row:
        cells = [] if row is None else [(row, column)]
        st.session_state[key] = {"selection": {"cells": cells}}


def clicked(key: str, num_rows: int) -> int | None:
    """Return the place of the row that is marked, for a table's callback; None where there is none."""
    row = _marked(key)
    return row if row is not None and row < num_rows else None


def _marked(key: str) -> int | None:
    state: DataframeState | DataframeStateInput | None = st.session_state.get(key)
    cells = state["selection"].get("cells") if state is not None else None
    return cells[0][0] if cells else None
