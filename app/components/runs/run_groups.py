"""The list of runs in groups: those with the same value of a field and the same data, with means of finished runs."""

from collections import Counter
from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from exgrpo.app.components.runs import run_table
from exgrpo.app.components.runs.comparison import mean_over
from exgrpo.app.components.widgets import data_table, grid, run_state
from exgrpo.app.formats import escape_control_characters, in_percent, literal
from exgrpo.db.rows.display_names import BATCH_PASS_RATE, held_out_score, model_name
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.spec_fields import UNKNOWN
from exgrpo.db.statistics import interval_text
from exgrpo_core.recording.run_status import RunStatus

MAX_RUNS = 1000
ADDRESS, OPENED = "group", "of"
_KEY = "run-group"
_HALF, _ENDS = "± 95%", "95% over runs"
_MAX_ROWS_SHOWN = 20
_OF_ROWS: dict[str, Callable[[RunRow], str]] = {
    "Method": lambda row: row.method,
    "Model": lambda row: row.model,
    "Preset": lambda row: row.preset or "none",
    "Data": lambda row: row.dataset,
    "Engine": lambda row: row.engine,
    "State": lambda row: run_state.state_name(run_state.state_of(row)),
    "Tags": lambda row: ", ".join(row.tags) or "none",
}


def choose() -> str | None:
    """Show the choice of what to group by and return it, None for no groups; it is in the address."""
    names = [*_OF_ROWS, *run_table.spec_fields()]
    wanted = st.query_params.get(ADDRESS)
    st.session_state[_KEY] = wanted if wanted in names else None
    st.selectbox(
        "Group by", names, index=None, key=_KEY, on_change=_take, placeholder="No groups",
        help="Mean over the finished runs of each group, which all have the same data. The 95% interval (Student's t) "
        "needs at least two of them",
    )  # fmt: skip
    chosen: str | None = st.session_state[_KEY]
    return chosen


def show(
    rows: Sequence[RunRow], num_fitting: int, name: str, all_rows: Callable[[], Sequence[RunRow]],
    measures: Sequence[str],
) -> None:  # fmt: skip
    """Show a line a group, of the first `MAX_RUNS` runs at most, in files of all; a click opens the group."""
    frame = table(rows, name, measures)
    if num_fitting > len(rows):
        st.caption(f"Groups of the first {len(rows):,} of {num_fitting:,} runs that fit, in the order of the list.")
    data_table.export_above(lambda: table(all_rows(), name, measures), "run-groups")
    number = st.column_config.NumberColumn(format="%.1f")
    columns = {name: number for name in map(str, frame) if name.endswith("%")}
    columns["Averaged"] = st.column_config.NumberColumn(help="Finished runs: means are over these")
    columns["Steps"] = st.column_config.TextColumn(help="Of the averaged runs")
    values = [str(value) for value in frame.get(name, [])]
    grid.draw(
        frame, "run-groups-table", f"Runs grouped by {name}, with the mean of their scores", columns, _MAX_ROWS_SHOWN,
        grid.Clicks(values, _open),
    )  # fmt: skip


def table(rows: Sequence[RunRow], name: str, measures: Sequence[str] = ()) -> pd.DataFrame:
    """Return a row a group, the largest first: runs, how many are averaged, each measure's mean and interval.

    Only finished runs are averaged, and none whose value is unknown: these have nothing in common.
    """
    lines = []
    values = run_table.measured(rows, measures)
    of_run = {row.run_id: {key: values[key][index] for key in values} for index, row in enumerate(rows)}
    for value, members in sorted(_groups(rows, name).items(), key=lambda item: (-len(item[1]), item[0])):
        is_known = not f"{value} ".startswith(f"{UNKNOWN} ")
        averaged = [row for row in members if row.status == RunStatus.FINISHED and is_known]
        line: dict[str, object] = {name: value, "Runs": len(members), "Averaged": len(averaged)}
        for score, of in ((BATCH_PASS_RATE, "last_pass_at_1"), (held_out_score(), "last_avg_at_n")):
            interval = mean_over([in_percent(getattr(row, of)) for row in averaged])
            line[f"{score}, %"] = interval and interval.mean
            line[f"{score}, {_ENDS}"] = (
                interval and interval_text(interval._replace(bounds=(0.0, 100.0)).ends(), scale=1.0)
            ) or None
        for measure in measures:
            interval = mean_over([of_run[row.run_id][measure] for row in averaged])
            line[measure], line[f"{measure} {_HALF}"] = (interval.mean, interval.half) if interval else (None, None)
        steps = sorted({row.step for row in averaged})
        lines.append(line | {"Steps": " to ".join(f"{step:,}" for step in dict.fromkeys([*steps[:1], *steps[-1:]]))})
    return pd.DataFrame(lines)


def open_group(rows: Sequence[RunRow], name: str) -> list[RunRow] | None:
    """Return the runs of the group in the address, under the button that leads back to all; None if none is open."""
    if (value := st.query_params.get(OPENED)) is None:
        return None
    st.button(
        f"{name}: {literal(value)}", icon=":material/arrow_back:", key="run-groups-back", help="Back to all groups",
        on_click=_close,
    )  # fmt: skip
    return members(rows, name)


def members(rows: Sequence[RunRow], name: str) -> list[RunRow]:
    """Return those of the runs that are in the group in the address."""
    return _groups(rows, name).get(st.query_params.get(OPENED, ""), [])


def _groups(rows: Sequence[RunRow], name: str) -> dict[str, list[RunRow]]:
    """Return the runs by their value, and by their data where those of a value have several: scores are of the data."""
    rows = [row for row in rows if row.kind == "train"] or rows
    if name in _OF_ROWS:
        values = [escape_control_characters(_OF_ROWS[name](row)) for row in rows]
    else:
        values = [value or "none" for value in run_table.field_values(rows, [name]).get(name, [])]
    data_of: dict[str, set[str]] = {}
    for value, row in zip(values, rows, strict=True):
        data_of.setdefault(value, set()).add(row.dataset)
    short = {data: model_name(data) for data in {row.dataset for row in rows}}
    counts = Counter(short.values())
    groups: dict[str, list[RunRow]] = {}
    for value, row in zip(values, rows, strict=True):
        data = short[row.dataset] if counts[short[row.dataset]] == 1 else row.dataset
        key = value if len(data_of[value]) == 1 else f"{value} on {escape_control_characters(data) or UNKNOWN}"
        groups.setdefault(key, []).append(row)
    return groups


# Not `address.put` below: the list is a fragment, and what it remembers could undo a step back.


def _open(value: str) -> None:
    st.query_params[OPENED] = value


def _close() -> None:
    st.query_params.pop(OPENED, None)


def _take() -> None:
    _close()
    if st.session_state[_KEY]:
        st.query_params[ADDRESS] = st.session_state[_KEY]
    else:
        st.query_params.pop(ADDRESS, None)
