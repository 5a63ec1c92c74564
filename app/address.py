"""User choices, written to the address by their callbacks.

A choice reaches the server with the browser's next message. If that is the refresh of another fragment, the callback
runs there, and the rerun that the choice asked for brings the address as it was before.
"""

import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

_WRITTEN = "address-written"
_SECONDS = 10.0
"""The message of a choice comes within this time, even from a busy browser."""


def put(values: Mapping[str, str | None]) -> None:
    """Write parameters to the address; None removes one."""
    _write(values)
    st.session_state[_WRITTEN] = time.monotonic(), _page(), {**_written(), **values}


def whole_number(name: str) -> int | None:
    """Return a parameter that is a number of at most 15 digits, else None."""
    written = st.query_params.get(name, "")
    return int(written) if written.isascii() and written.isdigit() and len(written) < 16 else None


def unbound() -> dict[str, str]:
    """Return the parameters of the address that no widget is bound to: Streamlit lets the others leave with theirs."""
    return {name: ",".join(st.query_params.get_all(name)) for name in st.query_params if not is_bound(name)}


def is_bound(name: str) -> bool:
    """Return whether a widget is bound to a parameter, which then only Streamlit may write."""
    context = get_script_run_ctx()
    if context is None:
        return True
    with context.session_state.query_params() as known:
        return known.is_bound(name)


def keep() -> None:
    """Write the newest callbacks' parameters again before a run of the whole page reads the address, and forget them.

    A step back or forward in the browser's history keeps the address that it opened.
    """
    context = get_script_run_ctx()
    if context is None or not context.is_history_navigation:
        _write(_written())
    st.session_state.pop(_WRITTEN, None)


def _written() -> dict[str, str | None]:
    at, page, values = st.session_state.get(_WRITTEN, (0.0, "", {}))
    return values if page == _page() and time.monotonic() - at < _SECONDS else {}


def _page() -> str:
    return urlsplit(st.context.url or "").path


def _write(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value
