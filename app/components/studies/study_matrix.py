"""A study as a matrix: the state of each cell and seed, what is still to start; a click opens the run."""

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app.components.widgets import exports, status_badge
from app.paper_and_studies import PendingRun, RunKey, Study
from db.rows.runs import BROKEN_STATES, RunRow

MISSING, FINISHED = "missing", "finished"
LIVE = ("running", "starting", "stopping", "queued")


@dataclass(frozen=True, slots=True)
class CellState:
    """One cell with its wanted seeds in order, and the state of each."""

    cell: str
    paper_rows: tuple[str, ...]
    keys: tuple[RunKey, ...]
    states: tuple[str, ...]
    runs: tuple[RunRow | None, ...]

    @property
    def num_finished(self) -> int:
        """Seeds whose run is finished."""
        return self.states.count(FINISHED)

    @property
    def state(self) -> str:
        """The state of the cell: that of a live run, else of a broken one, else finished or missing."""
        present = {*self.states}
        for state in (*LIVE, *BROKEN_STATES):
            if state in present:
                return state
        return FINISHED if present == {FINISHED} else MISSING

    @property
    def words(self) -> str:
        """The state in words, with how many seeds are finished."""
        name = {"starting": "running", "stopping": "running"}.get(self.state, self.state)
        return (
            name
            if self.num_finished in {0, len(self.states)}
            else f"{name}, {self.num_finished}/{len(self.states)} seeds"
        )


def cell_states(study: Study, keys: Sequence[RunKey], runs: Mapping[RunKey, RunRow]) -> list[CellState]:
    """Return the state of each cell that has wanted runs, in the order of the study."""
    rows: dict[str, dict[str, None]] = {}
    for table in study.tables:
        for row in table.rows:
            for cell in row.cells:
                rows.setdefault(cell, {})[row.row] = None
    keys_of: dict[str, list[RunKey]] = {}
    for key in keys:
        keys_of.setdefault(key.cell, []).append(key)
    states_of_cells = []
    for name, cell_keys in keys_of.items():
        known = tuple(runs.get(key) for key in cell_keys)
        states = tuple(MISSING if run is None else run.status for run in known)
        states_of_cells.append(CellState(name, tuple(rows.get(name, {})), tuple(cell_keys), states, known))
    return states_of_cells


def pending(cells: Sequence[CellState]) -> list[PendingRun]:
    """Return the missing, failed, lost and stopped runs, seed by seed, so that cells stay even if it is interrupted."""
    open_runs = [
        PendingRun(key, run)
        for cell in cells
        for key, run, state in zip(cell.keys, cell.runs, cell.states, strict=True)
        if state == MISSING or state in BROKEN_STATES
    ]
    return sorted(open_runs, key=lambda pending_run: pending_run.key.seed)


def one_run_of_each_cell(cells: Sequence[CellState]) -> list[str]:
    """Return the id of one run of each cell that has any with steps: that of its first seed."""
    begun = [[run.run_id for run in cell.runs if run is not None and run.step] for cell in cells]
    return [run_ids[0] for run_ids in begun if run_ids]


def count_states(cells: Sequence[CellState]) -> Counter[str]:
    """Return how many runs are in each state."""
    return Counter(state for cell in cells for state in cell.states)


_ROW_HEIGHT = 35
_ROWS_IN_VIEW = 15
"""More scroll, so that the launch below stays near."""
_STATES = status_badge.STATES | {MISSING: (MISSING, status_badge.FAINT, "")}


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
        frame[f"Seed {key.seed}"] = [[_STATES.get(cell.states[index], ("unknown",))[0]] for cell in cells]
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
    seeds = {
        f"Seed {key.seed}": status_badge.column(_STATES, 78, f"Runs with seed {key.seed}") for key in cells[0].keys
    }
    return {
        "Cell": config.TextColumn(width=204, pinned=True),
        "Paper's row": config.TextColumn(width=150),
        "State": config.TextColumn(width=136),
        **seeds,
    }
