"""Text of models of any length, cut where a browser could not display it."""

import streamlit as st

from app.formats import NONE_SHOWN, escape_control_characters

MAX_CHARACTERS = 100_000


def show(text: str) -> None:
    """Show the text, or the beginning of a long one with a note."""
    st.code(escape_control_characters(beginning(text)) or NONE_SHOWN, language=None, wrap_lines=True)
    show_bound(text)


def beginning(text: str) -> str:
    """Return the text up to the bound."""
    return text[:MAX_CHARACTERS]


def show_bound(text: str) -> None:
    """Show how much of the text was cut, if any."""
    if len(text) > MAX_CHARACTERS:
        st.caption(f"The first {MAX_CHARACTERS:,} of {len(text):,} characters; `exgrpo trajectory` prints all of them.")
