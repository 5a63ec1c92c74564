"""A small menu beside a table or figure that hands out its values as a file."""

from collections.abc import Callable, Mapping
from typing import Any

import streamlit as st

from app.components.widgets.table_text import FORMATS, Rows

Formats = Mapping[str, tuple[str, str, Callable[[Any], str]]]
"""File ending, MIME type and writer of each format, by its displayed name."""


def show(rows: Rows | Callable[[], Any], name: str, key: str | None = None, *, formats: Formats = FORMATS) -> None:
    """Show a menu of downloads of `rows` as files called `name`; nothing is written before it is opened.

    `rows` may be a function, which is called then. A page's menus need different keys; `name` is the key where none is
    given. A table with a special layout brings `formats` that write it. A file that is written at the click is not
    for sure there when the browser asks for it: Streamlit forgets it as soon as two scripts of any sessions end.
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
