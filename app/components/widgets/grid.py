"""The table of every page: a component on Streamlit's public interface; serving/table.js is its half in the browser."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from exgrpo.app.formats import NONE_SHOWN, as_utc, column_format

Columns = Mapping[str, ColumnConfig]
_ROW_HEIGHT, _FRAME = 34, 14
"""Pixels of a row, and of the borders with the bar of a table that is wider than the page."""
_NAMING = re.compile(r"(?:.*[._ ])?(?:id|trajectory|question|seed|attempt|index|port|pid)", re.IGNORECASE)
"""Columns of whole numbers that count nothing, fields of a specification such as `algorithm.seed` too."""
_NUMBER = r"[+\-]?\d[\d,]*(?:\.\d+)?(?:e[+\-]\d+)?%?"
_FIGURE = re.compile(rf"{_NUMBER}(?: (?:±|to|of|/) {_NUMBER})*")
"""Texts such as 0.5 ± 0.1, which stand at the right as numbers do."""
_KINDS = {"progress": "progress", "area_chart": "curve"}
# A module of few characters, since it comes with every table: the browser has table.js already.
_component = st.components.v2.component(
    "exgrpo_table", js="export default (component) =>\n  window.exgrpoTable(component)", isolate_styles=False
)


@dataclass(frozen=True, slots=True)
class Order:
    """The column by which rows are sorted."""

    column: str
    is_descending: bool


@dataclass(frozen=True, slots=True)
class Click:
    """A click on a cell."""

    row: int
    column: str


@dataclass(frozen=True, slots=True)
class Answer:
    """What the user does in a table."""

    click: Click | None
    """In this run of the script."""
    ticked: list[str]


@dataclass(frozen=True, slots=True)
class Clicks:
    """What clicks on rows do."""

    ids: Sequence[str]
    """Of the rows, which may come and go by themselves: a click is on the row that the user sees."""
    on_open: Callable[[str], None] | None = None
    """Called with the id of a row that is clicked, before the script runs; the script has the click, too."""
    opened: str | None = None
    """The id of the row that is marked."""
    ticks: bool = False
    """Whether rows have a box to tick."""


@dataclass(frozen=True, slots=True)
class Sorting:
    """How rows are sorted on the server, and further ones come."""

    order: Order
    columns: Mapping[str, bool]
    """Those whose heads sort, each with whether the first click puts the highest value first."""
    on_sort: Callable[[Order], None]
    num_rows: int | None = None
    """In all, where the table has some of them."""
    on_end: Callable[[], None] = lambda: None
    """Called when the user has scrolled to the last row."""


def counts(column: str) -> bool:
    """Return whether the numbers of a column count something, and name nothing as an id or a seed does."""
    return _NAMING.fullmatch(column) is None


def draw(
    frame: pd.DataFrame, key: str, alt: str, columns: Columns | None = None, most: int | None = None,
    clicks: Clicks | None = None, sorting: Sorting | None = None,
) -> Answer:  # fmt: skip
    """Show a table, of whose rows `most` are seen at once, and return what the user does there.

    Without `sorting` the browser sorts the rows, all of which it has.
    """
    on = clicks or Clicks(())
    names = [str(name) for name in frame]
    values = [[_cell(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    data = {
        "alt": alt,
        "columns": [
            _column(name, (columns or {}).get(name, {}), [row[index] for row in values], sorting)
            for index, name in enumerate(names)
        ],
        "rows": values,
        "opens": clicks is not None,
        "opened": on.opened,
        "order": {"name": sorting.order.column, "isDescending": sorting.order.is_descending} if sorting else None,
        "total": sorting.num_rows if sorting else None,
        "ids": list(on.ids),
        "ticked": _ticked(key, on.ids) if on.ticks else None,
    }

    def clicked(sent: object) -> Click | None:
        match sent:
            case {"id": str(name), "column": str(column)} if name in on.ids and column in names:
                return Click(on.ids.index(name), column)
        return None

    def take_click() -> None:
        if on.on_open and (click := clicked(_sent(key, "opened"))):
            on.on_open(on.ids[click.row])

    def take_order() -> None:
        match _sent(key, "sorted"):
            case {"name": str(name), "isDescending": bool(is_descending)} if sorting and name in sorting.columns:
                sorting.on_sort(Order(name, is_descending))

    def take_end() -> None:
        if sorting and _sent(key, "more") == len(values):
            sorting.on_end()

    result = _component(
        key=key, data=data, height=_ROW_HEIGHT * (1 + min(max(len(values), 1), most or max(len(values), 1))) + _FRAME,
        on_opened_change=take_click, on_sorted_change=take_order, on_more_change=take_end,
        on_ticked_change=lambda: None,
    )  # fmt: skip
    return Answer(clicked(result.get("opened")), _ticked(key, on.ids))


def _sent(key: str, name: str) -> object:
    """Return what the browser sent last, of any type, or None."""
    state = st.session_state.get(key)
    return state.get(name) if isinstance(state, Mapping) else None


def _ticked(key: str, ids: Sequence[str]) -> list[str]:
    sent = _sent(key, "ticked")
    return [row for row in ids if row in sent] if isinstance(sent, list) else []


def _column(name: str, config: ColumnConfig, values: Sequence[object], sorting: Sorting | None) -> dict[str, Any]:
    details: Mapping[str, Any] = config.get("type_config") or {}
    present = [value for value in values if value is not None and value not in ("", NONE_SHOWN)]
    is_number = details.get("type") == "number" or (
        bool(present) and all(isinstance(value, Real) and not isinstance(value, bool) for value in present)
    )
    usual = "%d" if not counts(name) else column_format(present) if is_number else None
    kind = _KINDS.get(details.get("type", ""), "number" if is_number else "text")
    width = config.get("width")
    is_figure = kind == "text" and width != "large" and all(_FIGURE.fullmatch(str(value)) for value in present or [""])
    is_right = config.get("alignment") == "right" or kind == "number" or is_figure
    return {
        "name": name,
        "label": config.get("label") or name,
        "kind": kind,
        "isRight": is_right,
        "startsHigh": sorting.columns.get(name) if sorting else kind != "text" or is_right,
        "sorts": name in sorting.columns if sorting else True,
        "help": config.get("help"),
        "width": {"small": 75, "medium": 200}.get(width) if isinstance(width, str) else width,
        "fills": width == "large",
        "format": details.get("format") or usual,
        "most": details.get("max_value") or details.get("y_max"),
        "colours": {option["value"]: option.get("color") for option in details.get("options") or ()},
    }


def _cell(value: object) -> object:
    """Return a value as JSON has it: None where there is none, a list for several, UTC for a time."""
    if isinstance(value, list | tuple | np.ndarray):
        return [_cell(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or value is pd.NA or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, datetime):
        return f"{as_utc(value):%Y-%m-%d %H:%M}"
    if isinstance(value, float) and math.isinf(value):
        return str(value)
    return value if isinstance(value, bool | int | float) else str(value)
