"""Text of models of any length, cut where a browser could not display it."""

import streamlit as st

from app.formats import NONE_SHOWN, escape_control_characters
from db.rows.trajectories import MAX_CHARACTERS


def show(text: str) -> None:
    """Show the text, or the beginning of a long one with a note."""
    st.code(escape_control_characters(beginning(text)) or NONE_SHOWN, language=None, wrap_lines=True)
    show_bound(len(text))


def beginning(text: str) -> str:
    """Return the text up to the bound."""
    return text[:MAX_CHARACTERS]


def show_bound(num_characters: int) -> None:
    """Show how much of a text was cut, if any."""
    if num_characters > MAX_CHARACTERS:
        st.caption(
            f"The first {MAX_CHARACTERS:,} of {num_characters:,} characters; `exgrpo trajectory` prints all of them."
        )
