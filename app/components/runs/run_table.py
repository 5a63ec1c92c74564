"""The list of runs as a table, whose columns the user chooses; a click opens a run, several can be ticked."""

import re
from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from exgrpo.app.components.widgets import grid, run_state
from exgrpo.app.components.widgets.spec_text import option_text
from exgrpo.app.formats import NONE_SHOWN, ago, duration, escape_control_characters, in_percent
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.benchmarks import list_scores
from exgrpo.db.queries.run_filter import RunOrder, RunSortKey, list_specs
from exgrpo.db.queries.run_values import list_values
from exgrpo.db.rows.display_names import BATCH_PASS_RATE, distinct_names, held_out_score, model_name
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.spec_differences import flatten
from exgrpo.db.statistics import interval_text
from exgrpo.jobs.evaluation.protocols import load_protocols
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.recording.run_status import RunStatus
from exgrpo_core.step_report import METRIC_LABELS, METRICS

DEFAULT_COLUMNS = (
    "State", "Run", "Method", "Progress", held_out_score(), "Scores", BATCH_PASS_RATE, "Curve", "Time left", "Created",
    "Health", "Tags", "Model", "Reason",
)  # fmt: skip
_OF_OTHER_JOBS = ("State", "Run", "Data", "Progress", "Time left", "Reason", "Created", "Tags")
_ALL_KINDS = "all"
USUAL_COLUMNS = {
    _ALL_KINDS: tuple(name for name in DEFAULT_COLUMNS if name not in {BATCH_PASS_RATE, "Model"}),
    "train": DEFAULT_COLUMNS,
    "eval": (*_OF_OTHER_JOBS[:2], "Scores", *_OF_OTHER_JOBS[2:]),
    "judge": _OF_OTHER_JOBS,
}
"""By kind of job; those of all kinds together fit a window of 1440 pixels."""
FURTHER_COLUMNS = ("Id", "Preset", "Data", "Step", "Started", "Engine")
_SCORE = re.compile(r"(avg|pass)@[1-9][0-9]{0,5}")
COLUMNS_ADDRESS = "columns"
_SEPARATOR = ","
_RECORDED = "config."
"""Before each setting of a run that a loop recorded."""
_KEY = "run-columns"


def spec_fields() -> list[str]:
    """Return the paths of all fields that a training run's specification has by default."""
    return [path for path in flatten(TrainSpec().model_dump(mode="json")) if path not in {"name", "kind"}]


def is_measure(name: str) -> bool:
    """Whether a column has a number of each run: a metric, a score over n answers, or a benchmark."""
    return name in METRICS or name in load_protocols() or _SCORE.fullmatch(name) is not None


def usual_columns(kinds: Sequence[str]) -> tuple[str, ...]:
    """Return the columns of a list of these kinds of jobs, of all where there is none."""
    return USUAL_COLUMNS[kinds[0] if kinds else _ALL_KINDS]


def columns_of_address(kinds: Sequence[str]) -> list[str]:
    """Return the columns that the address asks for, else the usual ones; the run's name is always one."""
    wanted = st.query_params.get(COLUMNS_ADDRESS)
    if wanted is None:
        return list(usual_columns(kinds))
    known = {*DEFAULT_COLUMNS, *FURTHER_COLUMNS, *spec_fields()}
    chosen = [
        name for name in wanted.split(_SEPARATOR) if name in known or is_measure(name) or name.startswith(_RECORDED)
    ]
    return chosen if "Run" in chosen else ["Run", *chosen]


def choose_columns(chosen: Sequence[str], usual: Sequence[str]) -> None:
    """Show the choice of columns, with the usual ones chosen; it is written into the address."""
    if st.session_state.get(_KEY) != list(chosen):  # set again, it would lose what the user types
        st.session_state[_KEY] = list(chosen)
    names = [*DEFAULT_COLUMNS, *FURTHER_COLUMNS, *METRICS, *load_protocols(), *spec_fields()]
    st.multiselect(
        "Columns", list(dict.fromkeys([*names, *chosen])), key=_KEY, on_change=_take_columns, args=(usual,),
        select_all=False, format_func=lambda name: f"{METRIC_LABELS[name]} ({name})" if name in METRICS else name,
        accept_new_options=True,
        help="Columns in the order chosen: fields of the specification have a dot, metrics a slash; type `avg@8` "
        "for a score over 8 answers, `config.lr` for a setting of recorded runs",
    )  # fmt: skip
    st.button("Usual columns", key="columns-usual", on_click=_reset, type="tertiary")


def field_values(rows: Sequence[RunRow], paths: Sequence[str]) -> dict[str, list[str | None]]:
    """Return the values of fields in each run, as `--set` writes them; None where a run has no such field."""
    if not paths:
        return {}
    specs = {run_id: flatten(spec) for run_id, spec in ask(list_specs, tuple(row.run_id for row in rows)).items()}
    of_rows = [specs.get(row.run_id, {}) for row in rows]
    return {
        path: [escape_control_characters(option_text(spec[path])) if path in spec else None for spec in of_rows]
        for path in paths
    }


def measured(rows: Sequence[RunRow], names: Sequence[str]) -> dict[str, list[float | None]]:
    """Return the newest value of each measure in each run; None where a run has none."""
    if not names:
        return {}
    values = ask(list_values, tuple(row.run_id for row in rows), tuple(names))
    return {name: [values.get(row.run_id, {}).get(name) for row in rows] for name in names}


def _scores(rows: Sequence[RunRow]) -> list[str]:
    """Return the scores of each evaluation with their 95% intervals, in percent."""
    texts: dict[str, list[str]] = {}
    if any(row.kind == "eval" for row in rows):
        for score in list_scores("paper"):
            ends = interval_text(score.interval)
            text = f"{score.title} {in_percent(score.score):.1f}" + (f" ({ends})" if ends else "")
            texts.setdefault(score.run_id, []).append(text)
    return [escape_control_characters(" · ".join(texts.get(row.run_id, ()))) for row in rows]


def _take_columns(usual: Sequence[str]) -> None:
    chosen = st.session_state[_KEY]
    # Not `address.put`: the list is a fragment, and what it remembers could undo a step back.
    if chosen and tuple(chosen) != tuple(usual):
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
_FROM_A = {RunSortKey.STATE, RunSortKey.NAME, RunSortKey.METHOD}
_LEFT_OUT_IF_EMPTY = (
    "Time left", BATCH_PASS_RATE, "Curve", held_out_score(), "Scores", "Health", "Reason", "Tags", "Model",
)  # fmt: skip
"""Columns that are left out where no run has anything in them, unless the user chose the columns."""
_ADDRESS = "sort"


def show(
    rows: Sequence[RunRow], key: str, order: RunOrder, columns: Sequence[str] = DEFAULT_COLUMNS
) -> tuple[str | None, list[RunRow]]:
    """Show the runs; return the id of the clicked one, and the ticked ones.

    A click on the head of a column that can be sorted by writes the order into the address.
    """
    keys = _sort_keys(columns)
    sorted_by = next(name for name, by in keys.items() if by == order.key)
    answer = grid.draw(
        table(rows, columns), key,
        "Table of runs with state, progress, time left, batch Pass@1 and its curve, held-out score and health",
        _columns(columns), _MAX_ROWS_SHOWN, grid.Clicks([row.run_id for row in rows], ticks=True),
        grid.Sorting(
            grid.Order(sorted_by, order.is_descending), {name: by not in _FROM_A for name, by in keys.items()},
            _take_order,
        ),
    )  # fmt: skip
    ticked = {*answer.ticked}
    opened = rows[answer.click.row].run_id if answer.click else None
    return opened, [row for row in rows if row.run_id in ticked]


def table(rows: Sequence[RunRow], columns: Sequence[str] = DEFAULT_COLUMNS) -> pd.DataFrame:
    """Return the table of runs with these columns; those that name fields are read from the specifications."""
    names = distinct_names((row.run_id, row.name) for row in rows)
    cells: dict[str, Sequence[object]] = {"Run": [escape_control_characters(names[row.run_id]) for row in rows]}
    cells |= {name: [_OF_ROWS[name][0](row) for row in rows] for name in columns if name in _OF_ROWS}
    if "Scores" in columns:
        cells["Scores"] = _scores(rows)
    cells |= measured(rows, [name for name in columns if is_measure(name)])
    cells |= field_values(rows, [name for name in columns if name not in cells])
    frame = pd.DataFrame({name: cells[name] for name in columns})
    if tuple(columns) not in USUAL_COLUMNS.values():
        return frame
    present = [name for name in _LEFT_OUT_IF_EMPTY if name in frame]
    empty = [name for name in present if all(cell in (None, "", [], NONE_SHOWN) for cell in cells[name])]
    return frame.drop(columns=empty)


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
    percent = frame.columns.intersection(["Progress", BATCH_PASS_RATE, held_out_score()])
    frame[percent] = frame[percent].astype(float).round(12)  # 100 * .28 is 28.000000000000004
    frame = frame.assign(**{name: pd.Series(cells, dtype=object) for name, cells in full.items() if name in frame})
    if "Id" not in frame:
        frame.insert(0, "Id", [row.run_id for row in rows])
    return frame.rename(columns={"Time left": "Seconds left"})


_NUMBER, _TEXT = st.column_config.NumberColumn, st.column_config.TextColumn
_BATCH = _NUMBER(width=98, format="%.1f%%", help="Share of the last batch's fresh rollouts that are correct")
_HELD_OUT = _NUMBER(width=110, format="%.1f%%", help="Newest mean correctness on questions that are not trained on")
_OF_ROWS: dict[str, tuple[Callable[[RunRow], object], ColumnConfig]] = {
    "State": (lambda row: [run_state.state_name(run_state.state_of(row))], run_state.column(run_state.STATES, 86)),
    "Method": (lambda row: escape_control_characters(row.method), _TEXT()),
    "Progress": (
        lambda row: 100.0 * run_state.fraction(row) if row.has_settings and not row.is_recorded else None,
        st.column_config.ProgressColumn(width=104, min_value=0, max_value=100, format="%.0f%%"),
    ),
    "Time left": (lambda row: duration(run_state.seconds_left(row)), _TEXT(width=74)),
    BATCH_PASS_RATE: (lambda row: in_percent(row.last_pass_at_1), _BATCH),
    "Curve": (
        lambda row: [100.0 * value for value in row.pass_at_1_curve],
        st.column_config.AreaChartColumn(width=88, y_min=0, y_max=100, help=f"{BATCH_PASS_RATE} by step, 0 to 100%"),
    ),
    held_out_score(): (lambda row: in_percent(row.last_avg_at_n), _HELD_OUT),
    "Health": (lambda row: [run_state.HEALTH[key][0] for key in row.health], run_state.column(run_state.HEALTH, 104)),
    "Reason": (
        lambda row: "" if row.status == RunStatus.STOPPED else escape_control_characters(row.status_reason),
        _TEXT(width=190, help="Why the run failed, was lost or waits"),
    ),
    "Tags": (lambda row: list(map(escape_control_characters, row.tags)), st.column_config.ListColumn(width=150)),
    "Created": (lambda row: ago(row.created_at), _TEXT(width=88)),
    "Started": (lambda row: ago(row.started_at), _TEXT(width=88)),
    "Model": (lambda row: escape_control_characters(model_name(row.model)), _TEXT(width=96)),
    "Engine": (lambda row: escape_control_characters(row.engine) or NONE_SHOWN, _TEXT(width=86)),
    "Id": (lambda row: row.run_id, _TEXT()),
    "Preset": (lambda row: escape_control_characters(row.preset or ""), _TEXT()),
    "Data": (lambda row: escape_control_characters(row.dataset), _TEXT()),
    "Step": (lambda row: row.step, _NUMBER(width=64)),
}


def _columns(chosen: Sequence[str]) -> dict[str, ColumnConfig]:
    measures: dict[str, ColumnConfig] = {
        name: _NUMBER(METRIC_LABELS.get(name), width=110, help=METRICS.get(name)) for name in filter(is_measure, chosen)
    }
    scores = _TEXT(width=210, help="Of each benchmark by the paper's grading, in percent, with its 95% interval")
    others = {"Run": _TEXT(width="large", help="Click a row to open the run"), "Scores": scores}
    return measures | others | {name: column for name, (_, column) in _OF_ROWS.items()}


def order_of_address(columns: Sequence[str]) -> RunOrder:
    """Return the order in the address: a key, descending after `-`; newest first where there is none."""
    wanted = st.query_params.get(_ADDRESS, "")
    key = wanted.removeprefix("-")
    return RunOrder(key, wanted.startswith("-")) if key in _sort_keys(columns).values() else RunOrder()


def _sort_keys(columns: Sequence[str]) -> dict[str, str]:
    """Return the sort key of each column that can be sorted by: of fields and measures their name."""
    chosen = {name: name for name in columns if name not in {*DEFAULT_COLUMNS, *FURTHER_COLUMNS}}
    return {**SORT_KEYS, **chosen}


def _take_order(order: grid.Order) -> None:
    # Not `address.put`: the list is a fragment, and what it remembers could undo a step back.
    st.query_params[_ADDRESS] = f"{'-' if order.is_descending else ''}{SORT_KEYS.get(order.column, order.column)}"
