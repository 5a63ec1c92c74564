"""A slider over steps whose value is in the address; one beyond the run's steps means the nearest."""

import streamlit as st

from app import address
from app.components.widgets import unknown_address


def show(label: str, first: int, last: int, usual: int, name: str) -> int:
    """Show the slider and return the step: the one that the address gives as `name`, else the usual one."""
    written = st.query_params.get(name, "")
    is_step = written.isascii() and written.isdigit() and len(written) < 10
    wanted = int(written) if is_step else usual
    st.session_state[name] = min(max(wanted, first), last)
    step = st.slider(label, first, last, key=name, on_change=_take, args=(name,))
    if written and not is_step:
        unknown_address.show(name, written, f"step {step} is shown")
    return step


def _take(name: str) -> None:
    address.put({name: str(st.session_state[name])})
