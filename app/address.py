"""What users choose, written into the address by the callbacks of their choices."""

from collections.abc import Mapping
from urllib.parse import urlsplit

import streamlit as st

_WRITTEN = "address-written"


def put(values: Mapping[str, str | None]) -> None:
    """Write parameters into the address; None takes one out."""
    _write(values)
    page, before = st.session_state.get(_WRITTEN, (_page(), {}))
    st.session_state[_WRITTEN] = _page(), {**(before if page == _page() else {}), **values}


def keep() -> None:
    """Write again what callbacks wrote since the last run of the whole page; to be called first in each.

    A choice reaches the server with the browser's next message. Where that is the refresh of a fragment, the callback
    runs there, and the run of the whole page that the choice asks for comes with the address as it was before.
    """
    page, values = st.session_state.pop(_WRITTEN, (_page(), {}))
    if page == _page():
        _write(values)


def _page() -> str:
    return urlsplit(st.context.url or "").path


def _write(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            st.query_params.pop(name, None)
        elif st.query_params.get(name) != value:
            st.query_params[name] = value
