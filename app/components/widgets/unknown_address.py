"""What an address asks for and there is not: said beside what is shown in its place."""

import streamlit as st

from app.formats import literal

_MAX_CHARS = 60


def show(parameter: str, wanted: str, shown: str) -> None:
    """Say in one sentence that `parameter` of the address names nothing here, and what is shown instead."""
    said = " ".join(wanted.split())
    said = said if len(said) <= _MAX_CHARS else f"{said[:_MAX_CHARS]}…"
    st.caption(
        f":material/link_off: The address asks for {parameter}={literal(said)}, which is not here: {literal(shown)}."
    )
