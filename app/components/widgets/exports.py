"""A small menu beside a table or figure that downloads its values as a file."""

from collections.abc import Callable, Mapping
from typing import Any

import pandas as pd
import streamlit as st

from app.components.widgets.table_text import FORMATS, Rows

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
