"""Choices kept in the address by name, not by label: values, steps, the open tab."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Literal

import streamlit as st

from app import address
from app.formats import escape_control_characters, literal
from db.rows.display_names import distinct_names

_SEPARATOR = ","
_MAX_CHARS = 60


def select(
    label: str, names: Mapping[str, str], parameter: str, default: str, drops: Sequence[str] = (),
    width: int | Literal["stretch"] = "stretch", explanation: str | None = None,
) -> str:  # fmt: skip
    """Show a choice of one of `names`, which map the value in the address to its label, and return it.

    Of equal labels the browser would choose the first, so these have a part of their value too. `drops` are parameters
    of the address that have a meaning only for the former choice.
    """
    key = f"choose-{parameter}"
    wanted = st.query_params.get(parameter)
    chosen = wanted if wanted is not None and wanted in names else default
    st.session_state[key] = chosen
    labels = distinct_names(names.items())
    st.selectbox(
        label, list(names), format_func=lambda name: escape_control_characters(labels[name]), key=key, on_change=_take,
        args=(parameter, key, drops), width=width, help=explanation,
    )  # fmt: skip
    if wanted and wanted not in names:
        show_unknown(parameter, wanted, f"showing {names[default]}")
    return chosen


def select_several(
    label: str, names: Mapping[str, str], parameter: str, default: Sequence[str], placeholder: str,
    label_visibility: Literal["visible", "collapsed"] = "visible", drops: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Show a choice of any of `names` and return those chosen, in the order of `names`; `drops` as for `select`."""
    key = f"choose-{parameter}"
    wanted = st.query_params.get_all(parameter)
    chosen = _SEPARATOR.join(wanted).split(_SEPARATOR) if wanted else default
    st.session_state[key] = [name for name in names if name in chosen]
    labels = distinct_names(names.items())
    st.multiselect(
        label, list(names), format_func=lambda name: escape_control_characters(labels[name]), key=key, on_change=_take,
        args=(parameter, key, drops), placeholder=placeholder, select_all=False, label_visibility=label_visibility,
    )  # fmt: skip
    return list(st.session_state[key])


def select_step(label: str, first: int, last: int, usual: int, name: str) -> int:
    """Show a slider over steps and return the step: the one nearest to the step in the address, else the usual one."""
    written, wanted = st.query_params.get(name), address.whole_number(name)
    st.session_state[name] = min(max(usual if wanted is None else wanted, first), last)
    step = st.slider(label, first, last, key=name, on_change=_take_step, args=(name,))
    if written and wanted is None:
        show_unknown(name, written, f"showing step {step}")
    return step


def _take(parameter: str, key: str, drops: Sequence[str] = ()) -> None:
    chosen = st.session_state[key]
    value = chosen if isinstance(chosen, str) else _SEPARATOR.join(chosen)
    address.put({parameter: value, **dict.fromkeys(drops)})


def _take_step(name: str) -> None:
    address.put({name: str(st.session_state[name])})


def show_unknown(parameter: str, wanted: str, displayed: str) -> None:
    """Show in one sentence that the value of `parameter` in the address does not exist, and what is `displayed`."""
    value = " ".join(wanted.split())
    value = value if len(value) <= _MAX_CHARS else f"{value[:_MAX_CHARS]}…"
    st.caption(
        f":material/link_off: The address asks for {parameter}={literal(value)}, which does not exist: "
        f"{literal(displayed)}."
    )


VIEW, PART = "view", "part"
"""Parameters of the address: the open tab of a page, and the open tab inside of it."""
OF_ONE_RUN = ("trajectory", "beside", "question", "mark", "against", "judge", "on", "item", "shown")
"""Parameters that name something of one run, in one tab of its page."""


def tabs(names: Sequence[str], parameter: str = VIEW) -> tuple[str, AbstractContextManager[object]]:
    """Show the tabs and return the open one's name and container; the first one needs no value in the address.

    The address is written here and not bound to the tabs: a bound value is lost when the user goes back to another
    page that binds the same name.
    """
    wanted = st.query_params.get(parameter)
    opened = wanted if wanted is not None and wanted in names else names[0]
    key = _tabs_key(parameter, names[0])
    st.session_state[key] = opened
    shown = st.tabs(names, key=key, on_change=_take_tab, args=(parameter, names[0]))
    tab = shown[names.index(opened)]
    if wanted and wanted not in names:
        with tab:
            show_unknown(parameter, wanted, f"showing {opened}")
    return opened, tab


def _tabs_key(parameter: str, first: str) -> str:
    return f"{parameter}-tabs-{first.lower()}"


def _take_tab(parameter: str, first: str) -> None:
    opened = st.session_state[_tabs_key(parameter, first)]
    drops = dict.fromkeys((PART, *OF_ONE_RUN)) if parameter == VIEW else {}
    address.put({**drops, parameter: None if opened == first else opened})


def open_trajectory(run_id: str, trajectory_id: int) -> None:
    """Lead to a trajectory of a run."""
    query = {"run": run_id, VIEW: "Trajectories", "trajectory": str(trajectory_id)}
    st.switch_page("app_pages/run.py", query_params=query)
