"""A small menu that downloads the values of a table or figure: CSV, Markdown, LaTeX."""

import csv
import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from numbers import Real
from typing import Any

import pandas as pd
import streamlit as st

from app.formats import escape_control_characters, exact

Rows = Sequence[Mapping[str, object]] | pd.DataFrame
"""A table: rows as mappings from column to value, or a frame, whose index is left out."""

_FORMULA_START = re.compile(r"\A(?=[=+\-@\t\r\n＝＋－＠])|(?<=[;\t\r\n])(?=[=+\-@＝＋－＠])")  # noqa: RUF001
"""Where a cell may start, in a spreadsheet whose language separates cells by semicolons too."""
_MARKDOWN_MARKS = r"\`*_[]<>|$#~&"
_LATEX_MARKS = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "\N{EN DASH}": "--",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
    "\N{GREEK SMALL LETTER RHO}": r"$\rho$",
    "\N{GREEK SMALL LETTER MU}": r"$\mu$",
    "\N{GREEK SMALL LETTER SIGMA}": r"$\sigma$",
    "\N{GREEK SMALL LETTER PI}": r"$\pi$",
}


@dataclass(frozen=True, slots=True)
class _Table:
    columns: list[str]
    rows: list[list[object]]

    def is_number(self, column: int) -> bool:
        """Whether every known value of a column is a number."""
        values = [row[column] for row in self.rows if row[column] is not None]
        return bool(values) and all(isinstance(value, Real) and not isinstance(value, bool) for value in values)


def as_csv(rows: Rows) -> str:
    """Return comma-separated values with a head, numbers in full.

    Text that a spreadsheet would run as a formula begins with an apostrophe.
    """
    table, text = _read(rows), io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([_without_formula(name) for name in table.columns])
    writer.writerows([[_csv_cell(value) for value in row] for row in table.rows])
    return text.getvalue()


def as_markdown(rows: Rows) -> str:
    """Return a pipe table, numbers with four digits, right-aligned."""
    table = _read(rows)
    rules = ["---:" if table.is_number(index) else "---" for index in range(len(table.columns))]
    lines = [[markdown(name) for name in table.columns], rules]
    lines += [[markdown(_cell_text(value)) for value in row] for row in table.rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def as_latex(rows: Rows) -> str:
    """Return a `tabular` with the rules of booktabs, numbers with four digits, right-aligned."""
    table = _read(rows)
    alignment = "".join("r" if table.is_number(index) else "l" for index in range(len(table.columns)))
    body = "".join(_latex_line([_cell_text(value) for value in row]) for row in table.rows)
    return (
        f"% needs \\usepackage{{booktabs}}\n\\begin{{tabular}}{{{alignment}}}\n\\toprule\n{_latex_line(table.columns)}"
        f"\\midrule\n{body}\\bottomrule\n\\end{{tabular}}\n"
    )


FORMATS: dict[str, tuple[str, str, Callable[[Rows], str]]] = {
    "CSV": ("csv", "text/csv", as_csv),
    "Markdown": ("md", "text/markdown", as_markdown),
    "LaTeX": ("tex", "application/x-tex", as_latex),
}
"""File ending, MIME type and writer of each format, by its displayed name."""


def markdown(text: str) -> str:
    """Return text as a cell of a pipe table in which no character is markup."""
    escaped = "".join(f"\\{character}" if character in _MARKDOWN_MARKS else character for character in text)
    return " ".join(escaped.split())


def latex(text: str) -> str:
    """Return text as LaTeX in which no character is a command."""
    return "".join(_LATEX_MARKS.get(character, character) for character in " ".join(text.split()))


def _read(rows: Rows) -> _Table:
    if isinstance(rows, pd.DataFrame):
        columns = [escape_control_characters(str(name)) for name in rows.columns]
        return _Table(columns, [[_plain(value) for value in row] for row in rows.itertuples(index=False, name=None)])
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return _Table(
        [escape_control_characters(name) for name in columns],
        [[_plain(row.get(name)) for name in columns] for row in rows],
    )


def _plain(value: object) -> object:
    """Return a number, a bool, a text, or None where there is no value; lists become text."""
    if value is None or value is pd.NaT or (isinstance(value, float) and math.isnan(value)):
        return None
    if isinstance(value, list | tuple | set):
        return ", ".join(str(_plain(item)) for item in value)
    if isinstance(value, datetime):
        return exact(value)
    return value if isinstance(value, Real) else escape_control_characters(str(value))


def _csv_cell(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, bool) or not isinstance(value, Real):
        return _without_formula(str(value))
    return value


def _without_formula(text: str) -> str:
    return text if _is_number(text) else _FORMULA_START.sub("'", text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _cell_text(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Real) and not float(value).is_integer():
        return f"{float(value):.4g}"
    return str(value)


def _latex_line(cells: Sequence[str]) -> str:
    return " & ".join(map(latex, cells)) + " \\\\\n"


Formats = Mapping[str, tuple[str, str, Callable[[Any], str]]]
"""File ending, MIME type and writer of each format, by its displayed name."""


def show_heading(title: str, rows: pd.DataFrame, name: str) -> None:
    """Show a subheading with the menu of downloads of the table below it, if the table has rows."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader(title, anchor=False, width="content")
        if not rows.empty:
            show(rows, name)


def show(rows: Rows | Callable[[], Any], name: str, key: str | None = None, *, formats: Formats = FORMATS) -> None:
    """Show a menu of downloads of `rows` as files called `name`; nothing is written before it is opened.

    `rows` may be a function, which is called when the menu opens. The menus of a page need different keys; the default
    key is `name`. A table with a special layout passes `formats` that write it. Files are written when the menu opens,
    not on the click: Streamlit forgets a file once two scripts of any sessions have ended.
    """
    key = key or name
    menu = st.popover(
        "Export",
        icon=":material/download:",
        type="tertiary",
        wrap=False,
        key=f"export-{key}",
        on_change="rerun",
        help=f"Download the values as {', '.join(formats)}",
    )
    if not menu.open:
        return
    table = rows() if callable(rows) else rows
    with menu, st.container(gap="xxsmall"):
        for label, (ending, mime, written) in formats.items():
            st.download_button(
                label,
                written(table),
                file_name=f"{name}.{ending}",
                mime=mime,
                on_click="ignore",
                type="tertiary",
                key=f"export-{key}-{ending}",
            )
