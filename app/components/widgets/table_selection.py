"""The selected row of a table: a click writes it to the address, and the address selects it in the table."""

from typing import TYPE_CHECKING

import streamlit as st

if TYPE_CHECKING:
    from streamlit.elements.arrow import DataframeState, DataframeStateInput


def select(key: str, row: int | None, column: str) -> None:
    """Select the row of this index, or none, in the table of this key, in a column; call it before the table is drawn.

    A click on a selected row sends nothing to the server, so a closed row must be unselected to be opened again.
    """
    if _selected(key) != row:
        cells = [] if row is None else [(row, column)]
        st.session_state[key] = {"selection": {"cells": cells}}


def clicked(key: str, num_rows: int) -> int | None:
    """Return the index of the selected row, for a table's callback; None where there is none."""
    row = _selected(key)
    return row if row is not None and row < num_rows else None


def _selected(key: str) -> int | None:
    state: DataframeState | DataframeStateInput | None = st.session_state.get(key)
    cells = state["selection"].get("cells") if state is not None else None
    return cells[0][0] if cells else None
