"""Choices that the address keeps by name, whatever their labels are."""

from collections.abc import Mapping, Sequence
from typing import Literal

import streamlit as st

from app import address
from app.components.widgets import unknown_address
from app.formats import escape_control_characters

_SEPARATOR = ","


def select(
    label: str,
    names: Mapping[str, str],
    parameter: str,
    default: str,
    drops: Sequence[str] = (),
    width: int | Literal["stretch"] = "stretch",
) -> str:
    """Show a choice of one of `names`, which map the value in the address to its label, and return it.

    `drops` are further parameters of the address that mean something under the former choice only.
    """
    key = f"choose-{parameter}"
    wanted = st.query_params.get(parameter)
    chosen = wanted if wanted is not None and wanted in names else default
    st.session_state[key] = chosen
    st.selectbox(
        label,
        list(names),
        format_func=lambda name: escape_control_characters(names[name]),
        key=key,
        on_change=_take,
        args=(parameter, key, drops),
        width=width,
    )
    if wanted and wanted not in names:
        unknown_address.show(parameter, wanted, f"{names[default]} is shown")
    return chosen


def select_several(
    label: str, names: Mapping[str, str], parameter: str, default: Sequence[str], placeholder: str
) -> list[str]:
    """Show a choice of any of `names` and return those chosen, in the order of `names`."""
    key = f"choose-{parameter}"
    wanted = st.query_params.get(parameter)
    chosen = default if wanted is None else wanted.split(_SEPARATOR)
    st.session_state[key] = [name for name in names if name in chosen]
    st.multiselect(
        label,
        list(names),
        format_func=lambda name: escape_control_characters(names[name]),
        key=key,
        on_change=_take,
        args=(parameter, key),
        placeholder=placeholder,
    )
    return list(st.session_state[key])


def _take(parameter: str, key: str, drops: Sequence[str] = ()) -> None:
    chosen = st.session_state[key]
    value = chosen if isinstance(chosen, str) else _SEPARATOR.join(chosen)
    address.put({parameter: value, **dict.fromkeys(drops)})
