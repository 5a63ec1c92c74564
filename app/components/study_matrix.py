"""A study's matrix: a row a cell, a column a seed, each with its state; a click opens the run."""

import hashlib
from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components import exports, status_badge
from app.components.run_table import STATE_COLOURS
from app.study_state import DONE, MISSING, CellState

_ROW_HEIGHT = 35
_NAMES = {state: name for state, (name, _, _) in status_badge.STATES.items()} | {MISSING: MISSING, DONE: "done"}
_COLOURS = {state: STATE_COLOURS[colour] for state, (_, colour, _) in status_badge.STATES.items()}
_MISSING_COLOUR = "#D5DCE6"


def show(cells: Sequence[CellState], name: str) -> None:
    """Show the matrix; a click on a seed leads to its run."""
    frame = table(cells)
    opened = hashlib.sha256(repr([cell.runs for cell in cells]).encode()).hexdigest()[:16]
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption("One column a seed; click a state to open its run", width="content")
        exports.show(lambda: frame, f"{name}-matrix")
    event = st.dataframe(
        frame,
        hide_index=True,
        key=f"matrix-{opened}",
        height=_ROW_HEIGHT * (len(cells) + 1) + 3,
        row_height=_ROW_HEIGHT,
        on_select="rerun",
        selection_mode="single-cell",
        column_config=_columns(cells),
        alt="Cells of the study with the state of each seed",
    )
    for row, column in event.selection.cells[:1]:
        run = _run_at(cells, row, column)
        if run is not None:
            st.switch_page("app_pages/run.py", query_params={"run": run})


def table(cells: Sequence[CellState]) -> pd.DataFrame:
    """Return one row a cell: the paper's rows it stands for, how far it is, and each seed's state."""
    frame = {
        "Cell": [cell.cell for cell in cells],
        "Stands for": [" / ".join(cell.paper_rows) or "no row of the paper" for cell in cells],
        "State": [cell.words for cell in cells],
    }
    for place, key in enumerate(_widest(cells).keys):
        frame[f"Seed {key.seed}"] = [[_NAMES.get(cell.states[place], "unknown")] for cell in cells]
    return pd.DataFrame(frame)


def _widest(cells: Sequence[CellState]) -> CellState:
    return max(cells, key=lambda cell: len(cell.keys))


def _run_at(cells: Sequence[CellState], row: int, column: str) -> str | None:
    """Return the run behind a place of the table; the cell's own columns lead to its first run."""
    if row >= len(cells):
        return None
    cell = cells[row]
    seeds = {f"Seed {key.seed}": run for key, run in zip(cell.keys, cell.runs, strict=True)}
    run = seeds[column] if column in seeds else next((own for own in cell.runs if own is not None), None)
    return None if run is None else run.run_id


def _columns(cells: Sequence[CellState]) -> dict[str, object]:
    config = st.column_config
    options = list(dict.fromkeys(_NAMES.values()))
    colours = {_NAMES[state]: _COLOURS.get(state, _MISSING_COLOUR) for state in _NAMES}
    seeds = {
        f"Seed {key.seed}": config.MultiselectColumn(
            width=78, options=options, color=[colours[own] for own in options], help=f"Runs with seed {key.seed}"
        )
        for key in _widest(cells).keys
    }
    return {
        "Cell": config.TextColumn(width=204, pinned=True),
        "Stands for": config.TextColumn("Paper's row", width=150),
        "State": config.TextColumn(width=136),
        **seeds,
    }
