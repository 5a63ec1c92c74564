"""Framed messages: what happened and what to do, and what pages and cards without content show."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal

import streamlit as st

from exgrpo.app.formats import escape_control_characters, literal, with_code
from exgrpo.app.settings import runs_root
from exgrpo.db.queries.text_search import check_search
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.rows.spec_fields import UNREADABLE_KIND
from exgrpo.jobs.actions import run_bin
from exgrpo_core.errors import UserError

Kind = Literal["error", "warning", "info"]

_ICONS = {"error": ":red[:material/error:]", "warning": ":orange[:material/warning:]", "info": ":blue[:material/info:]"}


def show(kind: Kind, title: str, text: str) -> None:
    """Show `text`, which may come from outside, under a `title` that the workbench chooses."""
    with st.container(border=True, key=f"notice-{kind}-{title.lower().replace(' ', '-')}", gap="xxsmall"):
        st.markdown(f"{_ICONS[kind]} **{title}**")
        if "`" in text:
            st.markdown(with_code(text).replace("\n", "  \n"))
        elif text:
            st.text(escape_control_characters(text))


@contextmanager
def refusals(title: str) -> Iterator[None]:
    """Show under `title` why what is asked for inside is refused, and skip the rest of it."""
    try:
        yield
    except UserError as error:
        show("error", title, str(error))


def is_searchable(words: str) -> bool:
    """Return whether there are few enough words to search for; else show how many there may be."""
    with refusals("Not searched"):
        check_search(words)
        return True
    return False


def show_unreadable_settings(row: RunRow) -> None:
    """Show what is unknown and how to fix it; nothing for other runs."""
    if row.has_settings:
        return
    is_known = row.kind != UNREADABLE_KIND
    shown = "What it recorded is shown." if is_known else "It recorded nothing that says what kind of run it is."
    show(
        "warning",
        "Settings cannot be read",
        f"spec.json of this run is damaged or missing. {shown}\n"
        "Copy spec.json from a backup, or from a run with the same name and settings. Then end `exgrpo up`, run "
        "`exgrpo db rebuild` and start `exgrpo up` again.",
    )


def show_empty(icon: str, title: str, text: str, command: str | None = None) -> None:
    """Show why there is no content and how to get some; `command` is a shell command for that."""
    with st.container(
        border=True, key=f"empty-{title.lower().replace(' ', '-')}", horizontal_alignment="center", gap="small"
    ):
        st.space("small")
        st.markdown(f"## :primary[:material/{icon}:]", text_alignment="center", width="content")
        st.subheader(title, anchor=False, text_alignment="center")
        st.markdown(text, text_alignment="center")
        if command:
            st.code(command, language=None, width="content")
        st.space("small")


def show_no_such_run() -> None:
    """Show that the run of the address does not exist or is in the bin, and where existing runs are listed."""
    binned = run_bin.list_deleted(runs_root()).get(st.query_params.get("run", ""))
    if binned is not None:
        text = f"{literal(binned)} was deleted. It can be restored under **Runs**, Bin, until the bin is emptied."
        show_empty("delete", "This run is in the bin", text)
        return
    show_empty(
        "search_off",
        "No such run",
        "The address names a run that is not in this workbench. Choose one under **Runs**, which lists archived ones.",
    )


def show_no_such_trajectory() -> None:
    """Show that the run has no trajectory of the address."""
    show_empty("search_off", "No such trajectory", "This run has no trajectory with the number in the address.")
