"""Choices kept in the address by name, not by label: values, steps, the open tab."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import streamlit as st

from exgrpo.app import address
from exgrpo.app.formats import escape_control_characters, literal
from exgrpo.db.rows.display_names import distinct_names

_SEPARATOR = ","
_MAX_CHARS = 60


def bound(
    parameter: str, chosen: object, key: str = "", drops: Sequence[str] = (), usual: str | None = None
) -> dict[str, Any]:
    """Return `key` and `on_change` of a widget that has the value `chosen` and writes another one into the address.

    `drops` are parameters of the address that have a meaning only for the former choice; `usual` and "" stay out.
    """
    key = key or f"choose-{parameter}"
    # A list that is set again loses what the user types into it.
    if not isinstance(chosen, list) or st.session_state.get(key) != chosen:
        st.session_state[key] = chosen

    def take() -> None:
        value = st.session_state[key]
        text = _SEPARATOR.join(value) if isinstance(value, list) else str(value)
        address.put(
            {**dict.fromkeys(drops), parameter: None if value is None or value == "" or text == usual else text}
        )

    return {"key": key, "on_change": take}


def select(
    label: str, names: Mapping[str, str], parameter: str, default: str, drops: Sequence[str] = (),
    width: int | Literal["stretch"] = "stretch", explanation: str | None = None,
) -> str:  # fmt: skip
    """Show a choice of one of `names`, which map the value in the address to its label, and return it.

    Of equal labels the browser would choose the first, so these have a part of their value too; `drops` as for `bound`.
    """
    wanted = st.query_params.get(parameter)
    chosen = wanted if wanted is not None and wanted in names else default
    labels = distinct_names(names.items())
    st.selectbox(
        label, list(names), format_func=lambda name: escape_control_characters(labels[name]), width=width,
        help=explanation, **bound(parameter, chosen, drops=drops),
    )  # fmt: skip
    if wanted and wanted not in names:
        show_unknown(parameter, wanted, f"showing {names[default]}")
    return chosen


def select_several(
    label: str, names: Mapping[str, str], parameter: str, default: Sequence[str], placeholder: str,
    label_visibility: Literal["visible", "collapsed"] = "visible", drops: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Show a choice of any of `names` and return those chosen, in the order of `names`; `drops` as for `bound`."""
    wanted = st.query_params.get_all(parameter)
    written = _SEPARATOR.join(wanted).split(_SEPARATOR) if wanted else default
    chosen = [name for name in names if name in written]
    labels = distinct_names(names.items())
    st.multiselect(
        label, list(names), format_func=lambda name: escape_control_characters(labels[name]), placeholder=placeholder,
        select_all=False, label_visibility=label_visibility, **bound(parameter, chosen, drops=drops),
    )  # fmt: skip
    return chosen


def select_step(label: str, first: int, last: int, usual: int, name: str) -> int:
    """Show a slider over steps and return the step: the one nearest to the step in the address, else the usual one."""
    written, wanted = st.query_params.get(name), address.whole_number(name)
    chosen = min(max(usual if wanted is None else wanted, first), last)
    step: int = st.slider(label, first, last, **bound(name, chosen, name))
    if written and wanted is None:
        show_unknown(name, written, f"showing step {step}")
    return step


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
OF_ONE_RUN = (
    "trajectory", "beside", "question", "mark", "against", "judge", "on", "item", "shown", "setting", "method",
)  # fmt: skip
"""Parameters that name something of one run, in one tab of its page."""
_RUN = "run"
_OF_TABS = {"step": ("Buffer", "Step")}
"""The tabs that share a parameter. Each of the others belongs to one tab, and the run to all tabs."""
_LEFT = "left-tabs"


def of_tab(opened: str = "") -> dict[str, str]:
    """Return what leaves the address when a tab of the page is opened."""
    names = address.unbound()
    return {name: text for name, text in names.items() if name != _RUN and opened not in _OF_TABS.get(name, ())}


def tabs(
    names: Sequence[str], parameter: str = VIEW, of_parts: Sequence[str] = ()
) -> tuple[str, AbstractContextManager[object]]:
    """Show the tabs and return the open one's name and container; the first one needs no value in the address.

    A tab's parameters leave the address with it and come back with it, but for those of `OF_ONE_RUN`. Tabs inside of a
    page's tab have the parameters `of_parts`. The address is written here and not bound to the tabs: a bound value is
    lost when the user goes back to another page that binds the same name.
    """
    wanted = st.query_params.get(parameter)
    opened = wanted if wanted is not None and wanted in names else names[0]
    key = f"{parameter}-tabs-{names[0].lower()}"
    options = bound(parameter, opened, key, usual=names[0])

    def open_tab() -> None:
        chosen, run = st.session_state[key], st.query_params.get(_RUN)
        of_opened = of_tab(chosen)
        leaving = {name: of_opened[name] for name in of_opened if parameter == VIEW or name in of_parts}
        left: dict[object, dict[str, str]] = st.session_state.setdefault(_LEFT, {})
        left[key, run, opened] = {}
        for name in leaving.keys() - {VIEW, *OF_ONE_RUN}:
            for tab in _OF_TABS.get(name, (opened,)):
                left.setdefault((key, run, tab), {})[name] = leaving[name]
        kept = address.unbound().keys() - leaving.keys()
        returning = left.get((key, run, chosen), {}).items()
        coming = {name: text for name, text in returning if name not in kept and not address.is_bound(name)}
        address.put({**dict.fromkeys(leaving), **coming})
        options["on_change"]()

    shown = st.tabs(names, key=key, on_change=open_tab)
    tab = shown[names.index(opened)]
    if wanted and wanted not in names:
        with tab:
            show_unknown(parameter, wanted, f"showing {opened}")
    return opened, tab


def open_trajectory(run_id: str, trajectory_id: int) -> None:
    """Lead to a trajectory of a run."""
    query = {"run": run_id, VIEW: "Trajectories", "trajectory": str(trajectory_id)}
    st.switch_page("app_pages/run.py", query_params=query)
