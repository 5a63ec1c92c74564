"""The end of a run's log as plain text."""

from collections.abc import Sequence

import streamlit as st

from app.components.widgets import empty_state
from app.formats import escape_control_characters

NUM_LINES = 200
NUM_LINES_IN_VIEW = 24
HEIGHT = 520


def show(lines: Sequence[str]) -> None:
    """Show the lines as they are: no markup, control characters made visible, scrolled to the end."""
    if not lines:
        empty_state.show("article", "No log yet", "The run writes here as soon as its process starts.")
        return
    st.caption(f"Last {len(lines)} lines of `log.txt`")
    with st.container(height=HEIGHT if len(lines) > NUM_LINES_IN_VIEW else "content", autoscroll=True, key="log-tail"):
        st.code(escape_control_characters("\n".join(lines)), language=None, wrap_lines=True)
