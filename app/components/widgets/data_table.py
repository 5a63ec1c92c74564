"""Tables, their downloads as CSV, JSON, Markdown or LaTeX, and tables with rows that open something on a click."""

import csv
import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import partial
from numbers import Real
from typing import Any, TypeGuard

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import grid
from exgrpo.app.components.widgets.grid import Columns
from exgrpo.app.formats import NONE_SHOWN, as_utc, escape_control_characters, number

_MAX_NUMBER_ROWS = 30
Rows = Sequence[Mapping[str, object]] | pd.DataFrame
"""A table: rows as mappings from column to value, or a frame, whose index is left out."""
Formats = Mapping[str, tuple[str, str, Callable[[Any], str]]]
"""File ending, MIME type and writer of each format, by its displayed name."""

_FORMULA_MARKS = r"=+\-@＝＋－＠"  # noqa: RUF001
_FORMULA_START, _FORMULA_WITHIN = (
    re.compile(pattern) for pattern in (rf"[{_FORMULA_MARKS}\t\r\n]", rf"[;\t\r\n](?=[{_FORMULA_MARKS}])")
)
"""Where a cell may start, in a spreadsheet whose language separates cells by semicolons too."""
_MARKDOWN_MARKS = r"\`*_[]<>|$#~&"


def as_csv(rows: Rows) -> str:
    """Return comma-separated values with a head, numbers in full.

    Text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    frame = pd.DataFrame(rows, dtype=object)
    return csv_lines([list(frame), *frame.itertuples(index=False, name=None)])


def csv_lines(rows: Iterable[Iterable[object]]) -> str:
    """Return rows of cells, of which the first may be the head, as lines of CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(map(_csv_cell, row) for row in rows)
    return text.getvalue()


def as_markdown(rows: Rows) -> str:
    """Return a pipe table in which no character is markup, numbers as `formats.number` writes them."""
    return pipe_table(_written(rows).map(markdown).rename(columns=markdown))


def as_json(rows: Rows) -> str:
    """Return a list of objects, numbers in full; infinite ones, which JSON lacks, are texts."""
    records = [
        {name: str(value) if isinstance(value, float) and math.isinf(value) else value for name, value in row.items()}
        for row in _plain(rows).to_dict("records")
    ]
    return json.dumps(records, ensure_ascii=False, indent=1, allow_nan=False, default=lambda value: value.item())


def as_latex(rows: Rows) -> str:
    """Return a `tabular` with the rules of booktabs, numbers as in `as_markdown`, at the right."""
    plain = _plain(rows)
    are_numbers = [all(value is None or _is_number(value) for value in plain[name]) for name in plain]
    sides = "".join("r" if is_number else "l" for is_number in are_numbers)
    text = _written(plain).to_latex(index=False, escape=True, column_format=sides)
    return f"% needs \\usepackage{{booktabs}}\n{text}"


FORMATS: Formats = {
    "CSV": ("csv", "text/csv", as_csv),
    "JSON": ("json", "application/json", as_json),
    "Markdown": ("md", "text/markdown", as_markdown),
    "LaTeX": ("tex", "application/x-tex", as_latex),
}
WHOLE_FORMATS: Formats = {name: FORMATS[name] for name in ("CSV", "JSON")}
"""For tables of any length, which nobody sets in a document."""
_WRITTEN = "export-written"


def markdown(text: str) -> str:
    """Return text as a cell of a pipe table in which no character is markup."""
    return "".join(f"\\{character}" if character in _MARKDOWN_MARKS else character for character in text)


def pipe_table(frame: pd.DataFrame) -> str:
    """Return a Markdown table of cells that are Markdown already."""
    lines: list[list[str]] = [list(frame.columns), ["---"] * len(frame.columns), *frame.to_numpy().tolist()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def show_heading(title: str, rows: pd.DataFrame, name: str) -> None:
    """Show a subheading with the menu of downloads of the table below it, if the table has rows."""
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        st.subheader(title, anchor=False)
        if not rows.empty:
            export(rows, name)


def show_caption(
    text: str, rows: Rows | Callable[[], Any], name: str, *, key: str | None = None, formats: Formats = FORMATS
) -> None:
    """Show a caption with the menu of downloads of the table below it."""
    with st.container(horizontal=True, vertical_alignment="center", wrap=False):
        st.caption(text)
        export(rows, name, key, formats=formats)


def export_above(
    rows: Rows | Callable[[], Any], name: str, key: str | None = None, formats: Formats = FORMATS
) -> None:  # fmt: skip
    """Show the menu of downloads at the right, above its table, as all tables have it."""
    with st.container(horizontal=True, horizontal_alignment="right"):
        export(rows, name, key, formats=formats)


def show_titled(title: str, frame: pd.DataFrame, name: str, alt: str, columns: Columns | None = None) -> None:
    """Show a table, if it has rows, under a subheading with its downloads."""
    show_heading(title, frame, name)
    if not frame.empty:
        grid.draw(frame, f"table-{name}", alt, columns)


def export(
    rows: Rows | Callable[[], Any], name: str, key: str | None = None, *, formats: Formats = FORMATS,
    label: str = "Export", note: str = "", pictures: Callable[[], None] | None = None,
) -> None:  # fmt: skip
    """Show a menu of downloads of `rows` as files called `name`; nothing is written before it is opened, or twice.

    `rows` may be a function, which is called when the menu opens. The menus of a page need different keys; the default
    key is `name`. A table with a special layout passes `formats` that write it; `note` says what is left out, and
    `pictures` shows what else is in the menu. Files are written when the menu opens, not on the click: Streamlit
    forgets a file once two scripts of any sessions have ended.
    """
    key = key or name
    menu = st.popover(
        label, icon=":material/download:", type="tertiary", wrap=False, key=f"export-{key}", on_change="rerun",
        help=f"Download {'the chart, or ' if pictures else ''}the values as {', '.join(formats)}",
    )  # fmt: skip
    if not menu.open:
        return
    table = rows() if callable(rows) else rows
    of, was, files = st.session_state.get(_WRITTEN, (None, None, []))
    if of != key or not _are_equal(was, table):
        files = [write(table).encode() for _, _, write in formats.values()]
        st.session_state[_WRITTEN] = key, table, files
    with menu, st.container(gap="xxsmall"):
        if pictures is not None:
            pictures()
        if note:
            st.caption(note)
        for (format_name, (ending, mime, _)), file in zip(formats.items(), files, strict=True):
            st.download_button(
                format_name, file, file_name=f"{name}.{ending}", mime=mime, on_click="ignore", type="tertiary",
                key=f"export-{key}-{ending}",
            )  # fmt: skip


def _are_equal(was: object, now: object) -> bool:
    if isinstance(was, pd.DataFrame) and isinstance(now, pd.DataFrame):
        return bool(was.equals(now))
    return type(was) is type(now) and bool(was == now)


def _plain(rows: Rows) -> pd.DataFrame:
    """Return the table with cells that are numbers, bools, safe text, or None where there is no value."""
    frame = pd.DataFrame(rows, dtype=object).rename(columns=lambda name: escape_control_characters(str(name)))
    return frame.apply(lambda column: pd.Series(map(_value, column), dtype=object))


def _written(rows: Rows) -> pd.DataFrame:
    """Return the table with cells as texts on one line."""
    texts: pd.DataFrame = _plain(rows).apply(
        lambda column: column.map(partial(_short, counts=grid.counts(str(column.name))))
    )
    return texts


def _value(value: object) -> object:
    """Return a number, a bool, a text, or None where there is no value; lists become text."""
    if type(value) is str:
        return escape_control_characters(value)
    if value is None or value is pd.NaT or (isinstance(value, Real) and math.isnan(value)):
        return None
    if isinstance(value, list | tuple | set):
        return ", ".join("" if (plain := _value(item)) is None else str(plain) for item in value)
    if isinstance(value, datetime):
        return as_utc(value).isoformat(timespec="seconds")
    if isinstance(value, float):
        return value + 0.0  # no minus zero
    return value if isinstance(value, Real) else escape_control_characters(str(value))


def _csv_cell(value: object) -> str:
    plain = _value(value)
    if not isinstance(plain, str):
        return "" if plain is None else str(plain)
    text = _FORMULA_WITHIN.sub(r"\g<0>'", plain)
    if not _FORMULA_START.match(text):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _is_number(value: object) -> TypeGuard[Real]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _short(value: object, *, counts: bool) -> str:
    """Return a cell as a text on one line; a number that counts nothing has no separators."""
    if value is None:
        return NONE_SHOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if _is_number(value):
        if math.isinf(value):
            return str(value)
        return number(float(value)) if counts else str(math.trunc(value))
    return " ".join(str(value).split())


def show(
    frame: pd.DataFrame, name: str, alt: str, columns: Columns | None = None, *, most: int | None = None,
    key: str | None = None,
) -> None:  # fmt: skip
    """Show a table under its downloads as files called `name`; of its rows `most` are seen at once."""
    export_above(frame, name, key)
    grid.draw(frame, f"table-{key or name}", alt, columns, most)


def show_card(
    title: str, frame: pd.DataFrame, name: str, alt: str, columns: Columns | None = None, note: str = ""
) -> None:
    """Show a whole table framed under its title and its downloads, with a note below it."""
    with st.container(border=True, gap="xxsmall", key=f"{name}-card"):
        show_heading(title, frame, name)
        grid.draw(frame, f"table-{name}", alt, columns)
        if note:
            st.caption(note)


def pick(
    frame: pd.DataFrame, key: str, alt: str, ids: Sequence[str], columns: Columns | None = None, most: int = 12
) -> int | None:
    """Show a table and return the index of the row that was clicked, for a page to leave for another."""
    click = grid.draw(frame, key, alt, columns, most, grid.Clicks(ids)).click
    return click.row if click else None


def show_numbers(frame: pd.DataFrame, words: Collection[str], alt: str, title: str = "", name: str = "") -> None:
    """Show a table whose numbers are texts, such as a mean with its interval: right-aligned, except columns `words`.

    With a title it is under it, with its downloads as files called `name`.
    """
    if title:
        show_heading(title, frame, name)
    columns = {str(name): st.column_config.Column(alignment="right") for name in frame if name not in words}
    # A table may be printed in two parts.
    key = name or hashlib.sha256(f"{alt}{frame.to_numpy().tolist()}".encode()).hexdigest()[:16]
    grid.draw(frame, f"table-{key}", alt, columns, _MAX_NUMBER_ROWS)
