"""Tags of one or several runs, and notes on one."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import streamlit as st

from app import requests
from app.components.widgets import notice
from app.formats import ago, escape_control_characters, exact, literal
from db.rows.runs import RunRow

_SAVED = "Saved"


def show_tags(rows: Sequence[RunRow], key: str) -> None:
    """Show a menu that adds a tag to the runs or removes one; it is disabled without runs."""
    with st.popover(
        "Tags" if len(rows) < 2 else f"Tag {len(rows):,} runs",
        icon=":material/sell:",
        disabled=not rows,
        key=f"{key}-tags",
        help=None if rows else "Tick runs to tag them",
    ):
        _tags(rows, key)


def show_notes(row: RunRow, notes: Sequence[tuple[datetime, str]]) -> None:
    """Show a menu with a run's tags and its notes, newest first, as plain text."""
    with st.popover(
        f"Notes ({len(notes)})" if notes else "Notes", icon=":material/edit_note:", wrap=False, key="run-notes"
    ):
        _tags([row], "run")
        with st.form("note-form", clear_on_submit=True, border=False):
            text = st.text_area("New note", key="new-note", height=90, max_chars=20_000)
            if st.form_submit_button("Add note", icon=":material/add:") and text.strip():
                _do([row], lambda run_id: requests.note(run_id, text))
        for at, text in reversed(notes):
            st.caption(ago(at), help=exact(at))
            st.text(escape_control_characters(text))


def _tags(rows: Sequence[RunRow], key: str) -> None:
    for tag in sorted({tag for row in rows for tag in row.tags}):
        tagged = [row for row in rows if tag in row.tags]
        if st.button(literal(tag), icon=":material/close:", key=f"{key}-untag-{tag}", help="Remove this tag"):
            _do(tagged, partial(requests.tag, name=tag, is_set=False))
    with st.form(f"{key}-tag-form", clear_on_submit=True, border=False):
        name = st.text_input("New tag", max_chars=40, key=f"{key}-new-tag", placeholder="baseline")
        if st.form_submit_button("Add tag", icon=":material/add:") and name.strip():
            _do(rows, lambda run_id: requests.tag(run_id, name))


def _do(rows: Sequence[RunRow], action: Callable[[str], None]) -> None:
    try:
        for row in rows:
            action(row.run_id)
    except requests.CommandError as error:
        notice.show("error", "Not saved", str(error))
    else:
        st.toast(_SAVED, icon=":material/check:")
