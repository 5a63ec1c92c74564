"""The list of runs as a table, whose columns the user chooses; a click opens a run, several can be ticked."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app import requests
from app.components.widgets import grid, run_state
from app.components.widgets.spec_text import flatten, option_text
from app.formats import NONE_SHOWN, ago, duration, escape_control_characters, in_percent
from app.queries.answers import ask
from db.queries.run_filter import RunOrder, RunSortKey, list_specs
from db.rows.display_names import BATCH_PASS_RATE, distinct_names, held_out_score, model_name
from db.rows.runs import RunRow

DEFAULT_COLUMNS = (
    "State", "Run", "Method", "Progress", "Time left", BATCH_PASS_RATE, "Curve", held_out_score(), "Health", "Reason",
    "Created", "Tags", "Started", "Model", "Engine",
)  # fmt: skip
FURTHER_COLUMNS = ("Id", "Preset", "Data", "Step")
COLUMNS_ADDRESS = "columns"
_SEPARATOR = ","
_KEY = "run-columns"


def spec_fields() -> list[str]:
    """Return the paths of all fields that a training run's specification has by default."""
    return [path for path in flatten(requests.TrainSpec().model_dump(mode="json")) if path not in {"name", "kind"}]


def columns_of_address() -> list[str]:
    """Return the columns that the address asks for, else the usual ones; the run's name is always one."""
    wanted = st.query_params.get(COLUMNS_ADDRESS)
    if wanted is None:
        return list(DEFAULT_COLUMNS)
    known = {*DEFAULT_COLUMNS, *FURTHER_COLUMNS, *spec_fields()}
    chosen = [name for name in wanted.split(_SEPARATOR) if name in known]
    return chosen if "Run" in chosen else ["Run", *chosen]


def choose_columns(chosen: Sequence[str]) -> None:
    """Show the menu of columns; the choice is written into the address."""
    with st.popover("Columns", icon=":material/view_column:", key="columns-menu"):
        st.session_state[_KEY] = list(chosen)
        st.multiselect(
            "Columns", [*DEFAULT_COLUMNS, *FURTHER_COLUMNS, *spec_fields()], key=_KEY, on_change=_take_columns,
            select_all=False, help="Columns in the order chosen; names with a dot are fields of the specification",
        )  # fmt: skip
        st.button("Usual columns", key="columns-usual", on_click=_reset, type="tertiary")


def field_values(rows: Sequence[RunRow], paths: Sequence[str]) -> dict[str, list[str | None]]:
    """Return the values of fields in each run, as `--set` writes them; None where a run has no such field."""
    if not paths:
        return {}
    specs = {run_id: flatten(spec) for run_id, spec in ask(list_specs, tuple(row.run_id for row in rows)).items()}
    return {path: [_text(specs.get(row.run_id, {}), path) for row in rows] for path in paths}


def _text(spec: Mapping[str, object], path: str) -> str | None:
    return escape_control_characters(option_text(spec[path])) if path in spec else None


def _take_columns() -> None:
    chosen = st.session_state[_KEY]
    # Not `address.put`: the list is a fragment, and what it remembers could undo a step back.
    if chosen and tuple(chosen) != DEFAULT_COLUMNS:
        st.query_params[COLUMNS_ADDRESS] = _SEPARATOR.join(chosen)
    else:
        _reset()


def _reset() -> None:
    st.query_params.pop(COLUMNS_ADDRESS, None)


_MAX_ROWS_SHOWN = 18
SORT_KEYS = {
    "State": RunSortKey.STATE,
    "Run": RunSortKey.NAME,
    "Method": RunSortKey.METHOD,
    "Progress": RunSortKey.PROGRESS,
    BATCH_PASS_RATE: RunSortKey.PASS_AT_1,
    held_out_score(): RunSortKey.AVG_AT_N,
    "Created": RunSortKey.CREATED,
    "Started": RunSortKey.STARTED,
}
"""The sort key of each column that can be sorted by."""
_FROM_A = {RunSortKey.STATE, RunSortKey.NAME, RunSortKey.METHOD}
_LEFT_OUT_IF_EMPTY = ("Time left", "Health", "Reason", "Tags")
"""Columns that are left out where no run has anything in them, unless the user chose the columns."""
_ADDRESS = "sort"


def show(
    rows: Sequence[RunRow], key: str, order: RunOrder, columns: Sequence[str] = DEFAULT_COLUMNS
) -> tuple[str | None, list[RunRow]]:
    """Show the runs; return the id of the clicked one, and the ticked ones.

    A click on the head of a column that can be sorted by writes the order into the address.
    """
    sorted_by = next(name for name, by in SORT_KEYS.items() if by is order.key)
    answer = grid.draw(
        table(rows, columns), key,
        "Table of runs with state, progress, time left, batch Pass@1 and its curve, held-out score and health",
        _columns(), _MAX_ROWS_SHOWN, grid.Clicks(ids=[row.run_id for row in rows], ticks=True),
        grid.Sorting(
            grid.Order(sorted_by, order.is_descending), {name: by not in _FROM_A for name, by in SORT_KEYS.items()},
            _take_order,
        ),
    )  # fmt: skip
    ticked = {*answer.ticked}
    opened = rows[answer.click.row].run_id if answer.click else None
    return opened, [row for row in rows if row.run_id in ticked]


def table(rows: Sequence[RunRow], columns: Sequence[str] = DEFAULT_COLUMNS) -> pd.DataFrame:
    """Return the table of runs with these columns; those that name fields are read from the specifications."""
    now = datetime.now(UTC)
    names = distinct_names((row.run_id, row.name) for row in rows)
    cells: dict[str, Sequence[object]] = {
        "State": [[run_state.state_name(run_state.state_of(row))] for row in rows],
        "Run": [escape_control_characters(names[row.run_id]) for row in rows],
        "Method": [escape_control_characters(row.method) for row in rows],
        "Progress": [100.0 * run_state.fraction(row) if row.has_settings else None for row in rows],
        "Time left": [duration(run_state.seconds_left(row)) for row in rows],
        BATCH_PASS_RATE: [in_percent(row.last_pass_at_1) for row in rows],
        "Curve": [[100.0 * value for value in row.pass_at_1_curve] for row in rows],
        held_out_score(): [in_percent(row.last_avg_at_n) for row in rows],
        "Health": [run_state.health_names(row.health) for row in rows],
        "Reason": [escape_control_characters(row.status_reason) for row in rows],
        "Tags": [list(map(escape_control_characters, row.tags)) for row in rows],
        "Created": [ago(row.created_at, now) for row in rows],
        "Started": [ago(row.started_at, now) for row in rows],
        "Model": [escape_control_characters(model_name(row.model)) for row in rows],
        "Engine": [escape_control_characters(row.engine) or NONE_SHOWN for row in rows],
        "Id": [row.run_id for row in rows],
        "Preset": [escape_control_characters(row.preset or "") for row in rows],
        "Data": [escape_control_characters(row.dataset) for row in rows],
        "Step": [row.step for row in rows],
    }
    cells |= field_values(rows, [name for name in columns if name not in cells])
    frame = pd.DataFrame({name: cells[name] for name in columns})
    if tuple(columns) != DEFAULT_COLUMNS:
        return frame
    return frame.drop(columns=[name for name in _LEFT_OUT_IF_EMPTY if not any(map(_has_content, cells[name]))])


def exported(rows: Sequence[RunRow], columns: Sequence[str]) -> pd.DataFrame:
    """Return the table for a file: with each run's id and name, times, and seconds in place of words for people."""
    frame = table(rows, [name for name in columns if name != "Curve"])
    full: dict[str, list[object]] = {
        "Run": [row.name for row in rows],
        "Time left": [run_state.seconds_left(row) for row in rows],
        "Created": [row.created_at for row in rows],
        "Started": [row.started_at for row in rows],
        "Engine": [row.engine for row in rows],
    }
    frame = frame.assign(**{name: pd.Series(cells, dtype=object) for name, cells in full.items() if name in frame})
    if "Id" not in frame:
        frame.insert(0, "Id", [row.run_id for row in rows])
    return frame.rename(columns={"Time left": "Seconds left"})


def _has_content(cell: object) -> bool:
    return bool(cell) and cell != NONE_SHOWN


def _columns() -> dict[str, ColumnConfig]:
    config = st.column_config
    return {
        "State": run_state.column(run_state.STATES, 86),
        "Run": config.TextColumn(width=200, help="Click a row to open the run"),
        "Method": config.TextColumn(width=86),
        "Progress": config.ProgressColumn(width=104, min_value=0, max_value=100, format="%.0f%%"),
        "Time left": config.TextColumn(width=74),
        BATCH_PASS_RATE: config.NumberColumn(
            width=98, format="%.1f%%", help="Share of the last batch's fresh rollouts that are correct"
        ),
        "Curve": config.AreaChartColumn(width=88, y_min=0, y_max=100, help=f"{BATCH_PASS_RATE} by step, 0 to 100%"),
        held_out_score(): config.NumberColumn(
            width=110, format="%.1f%%", help="Newest mean correctness on questions that are not trained on"
        ),
        "Health": run_state.column(run_state.HEALTH, 104),
        "Reason": config.TextColumn(width=190, help="Why the run failed, was lost or waits"),
        "Tags": config.ListColumn(width=84),
        "Created": config.TextColumn(width=88),
        "Started": config.TextColumn(width=88),
        "Model": config.TextColumn(width=96),
        "Engine": config.TextColumn(width=86),
        "Step": config.NumberColumn(width=64, format="localized"),
    }


def order_of_address() -> RunOrder:
    """Return the order in the address: a key, descending after `-`; newest first where there is none."""
    wanted = st.query_params.get(_ADDRESS, "")
    try:
        return RunOrder(RunSortKey(wanted.removeprefix("-")), wanted.startswith("-"))
    except ValueError:
        return RunOrder()


def _take_order(order: grid.Order) -> None:
    # Not `address.put`: the list is a fragment, and what it remembers could undo a step back.
    st.query_params[_ADDRESS] = f"{'-' if order.is_descending else ''}{SORT_KEYS[order.column]}"
