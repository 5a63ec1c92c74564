"""A study's matrix: one row per cell, one column per seed, each with its state; a click opens the run."""

import hashlib
from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app import theme
from app.components.runs.run_table import STATE_COLOURS
from app.components.studies.study_state import MISSING, CellState
from app.components.widgets import exports, status_badge

_ROW_HEIGHT = 35
_ROWS_IN_VIEW = 15
"""More scroll, so that the launch below stays near."""
_NAMES = {state: name for state, (name, _, _) in status_badge.STATES.items()} | {MISSING: MISSING}
_COLOURS = {state: STATE_COLOURS[colour] for state, (_, colour, _) in status_badge.STATES.items()}


def show(cells: Sequence[CellState], name: str) -> None:
    """Show the matrix; a click on a seed leads to its run."""
    frame = table(cells)
    opened = hashlib.sha256(
        repr([(cell.states, [run and run.run_id for run in cell.runs]) for cell in cells]).encode()
    ).hexdigest()[:16]
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(
            "One column per seed; click a state to open its run, a cell for the list of its runs", width="content"
        )
        exports.show(lambda: frame, f"{name}-matrix")
    event = st.dataframe(
        frame,
        hide_index=True,
        key=f"matrix-{opened}",
        height=_ROW_HEIGHT * (min(len(cells), _ROWS_IN_VIEW) + 1) + 3,
        row_height=_ROW_HEIGHT,
        on_select="rerun",
        selection_mode="single-cell",
        column_config=_columns(cells),
        alt="Cells of the study with the state of each seed",
    )
    for row, column in event.selection.cells[:1]:
        if row < len(cells):
            _open(cells[row], column)


def table(cells: Sequence[CellState]) -> pd.DataFrame:
    """Return one row per cell: the paper's rows that it reproduces, if any cell has one, and the state of each seed.

    All cells of a study have the same seeds.
    """
    frame: dict[str, Sequence[object]] = {
        "Cell": [cell.cell for cell in cells],
        "Paper's row": [" / ".join(cell.paper_rows) or "no row of the paper" for cell in cells],
        "State": [cell.words for cell in cells],
    }
    if not any(cell.paper_rows for cell in cells):
        del frame["Paper's row"]
    for index, key in enumerate(cells[0].keys):
        frame[f"Seed {key.seed}"] = [[_NAMES.get(cell.states[index], "unknown")] for cell in cells]
    return pd.DataFrame(frame)


def _open(cell: CellState, column: str) -> None:
    """Lead to the run of a seed, or to the list of a cell's runs."""
    seeds = {f"Seed {key.seed}": run for key, run in zip(cell.keys, cell.runs, strict=True)}
    if column not in seeds:
        tags = [tag for tag in cell.keys[0].tags if not tag.startswith("seed:")]
        st.switch_page("app_pages/runs.py", query_params={"q": " ".join(tags)})
    run = seeds[column]
    if run is not None:
        st.switch_page("app_pages/run.py", query_params={"run": run.run_id})


def _columns(cells: Sequence[CellState]) -> dict[str, ColumnConfig]:
    config = st.column_config
    options = list(dict.fromkeys(_NAMES.values()))
    missing = theme.palette().grid
    colours = {_NAMES[state]: _COLOURS.get(state, missing) for state in _NAMES}
    seeds = {
        f"Seed {key.seed}": config.MultiselectColumn(
            width=78, options=options, color=[colours[name] for name in options], help=f"Runs with seed {key.seed}"
        )
        for key in cells[0].keys
    }
    return {
        "Cell": config.TextColumn(width=204, pinned=True),
        "Paper's row": config.TextColumn(width=150),
        "State": config.TextColumn(width=136),
        **seeds,
    }
