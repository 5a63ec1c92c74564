"""The note that the address asks for something that does not exist."""

import streamlit as st

from app.formats import literal

_MAX_CHARS = 60


def show(parameter: str, wanted: str, displayed: str) -> None:
    """Show in one sentence that the value of `parameter` in the address does not exist, and what is `displayed`."""
    value = " ".join(wanted.split())
    value = value if len(value) <= _MAX_CHARS else f"{value[:_MAX_CHARS]}…"
    st.caption(
        f":material/link_off: The address asks for {parameter}={literal(value)}, which does not exist: "
        f"{literal(displayed)}."
    )
