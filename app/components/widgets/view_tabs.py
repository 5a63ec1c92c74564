"""The views of a page as tabs; the open one is in the address."""

from collections.abc import Sequence
from contextlib import AbstractContextManager

import streamlit as st

from app import address

_ADDRESS = "view"
_KEY = "view-tabs"


def show(names: Sequence[str]) -> tuple[str, AbstractContextManager[object]]:
    """Show the tabs and return the open one's name and container; the first one needs no value in the address.

    The address is written here and not bound to the tabs: a bound value is lost when the user goes back to another
    page that binds the same name.
    """
    wanted = st.query_params.get(_ADDRESS)
    opened = wanted if wanted is not None and wanted in names else names[0]
    st.session_state[_KEY] = opened
    tabs = st.tabs(names, key=_KEY, on_change=_take, args=(names[0],))
    return opened, tabs[names.index(opened)]


def _take(first: str) -> None:
    opened = st.session_state[_KEY]
    address.put({_ADDRESS: None if opened == first else opened})
