"""The list of runs as a table that opens a run on a click."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pandas as pd
import streamlit as st

from app.components import run_progress, status_badge
from app.formats import NONE_SHOWN, ago, duration, inert
from db.rows import RunRow

_ROW_HEIGHT = 38
_MAX_ROWS_SHOWN = 18
_STATE_COLOURS = {
    "gray": "#64748B",
    "blue": "#2F6FB5",
    "orange": "#B0601C",
    "green": "#1F7A5A",
    "red": "#B83A4B",
    "violet": "#7C4FB0",
    "yellow": "#8A6D10",
}


def show(rows: Sequence[RunRow], key: str) -> str | None:
    """Show the runs and return the id of the one whose row was clicked."""
    event = st.dataframe(
        table(rows),
        key=key,
        hide_index=True,
        height=_ROW_HEIGHT * (min(len(rows), _MAX_ROWS_SHOWN) + 1) + 2,
        row_height=_ROW_HEIGHT,
        column_config=_columns(),
        on_select="rerun",
        selection_mode="single-cell",
        placeholder=NONE_SHOWN,
        alt="Table of runs with state, progress, time left, Pass@1, held-out score and the curve of Pass@1",
    )
    cells = event.selection.cells
    return rows[cells[0][0]].run_id if cells and cells[0][0] < len(rows) else None


def table(rows: Sequence[RunRow]) -> pd.DataFrame:
    """Return the runs as shown, one row each."""
    now = datetime.now(UTC)
    return pd.DataFrame(
        {
            "State": [[status_badge.state_name(row.status)] for row in rows],
            "Run": [inert(row.name) for row in rows],
            "Method": [inert(row.method) for row in rows],
            "Progress": [100.0 * run_progress.fraction(row) for row in rows],
            "Time left": [duration(run_progress.seconds_left(row)) for row in rows],
            "Pass@1": [_percent(row.last_pass_at_1) for row in rows],
            "Pass@1 curve": [[100.0 * value for value in row.pass_at_1_curve] for row in rows],
            "Held out": [_percent(row.last_avg_at_n) for row in rows],
            "Health": [status_badge.health_names(row.health) for row in rows],
            "Model": [inert(row.model) for row in rows],
            "Created": [ago(row.created_at, now) for row in rows],
        }
    )


def _percent(value: float | None) -> float | None:
    return None if value is None else 100.0 * value


def _columns() -> dict[str, object]:
    config = st.column_config
    states = list(status_badge.STATES.values())
    health = list(status_badge.HEALTH.values())
    return {
        "State": config.MultiselectColumn(
            width=88,
            options=[name for name, _, _ in states],
            color=[_STATE_COLOURS[colour] for _, colour, _ in states],
        ),
        "Run": config.TextColumn(width=160, help="Click a row to open the run"),
        "Method": config.TextColumn(width=92),
        "Progress": config.ProgressColumn(width=112, min_value=0, max_value=100, format="%d %%"),
        "Time left": config.TextColumn(width=92),
        "Pass@1": config.NumberColumn(width=68, format="%.1f %%", help="Of the last training batch"),
        "Pass@1 curve": config.AreaChartColumn(width=110, y_min=0, y_max=100, help="Pass@1 by step, 0 to 100 %"),
        "Held out": config.NumberColumn(width=72, format="%.1f %%", help="Newest Avg@n on held-out questions"),
        "Health": config.MultiselectColumn(
            width=160,
            options=[name for name, _, _ in health],
            color=[_STATE_COLOURS[colour] for _, colour, _ in health],
        ),
        "Model": config.TextColumn(width=110),
        "Created": config.TextColumn(width=90),
    }
