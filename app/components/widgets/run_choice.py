"""The head of a page about one run: its title, and the run, chosen by name and kept in the address."""

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import address
from app.components.widgets import browser_title, empty_state, typed_run, unreadable_settings
from app.queries.answers import ask
from app.queries.runs import training_names
from db.queries import runs
from db.queries.runs import RunName
from db.rows.display_names import distinct_names
from db.rows.runs import RunRow
from db.rows.unreadable_specs import UNREADABLE_KIND

_KEY = "run-choice"
_RUN_PARAMETERS = ("trajectory", "question", "mark")
"""Parameters of the address that are valid for one run only."""


def show_header(page: str) -> tuple[RunRow | None, DeltaGenerator]:
    """Show the page's title and the choice of its run; return the run, and a container beside it for other choices.

    The run is the one in the address, else the one seen last, else the newest. The browser's tab is named after it and
    the page. Without runs, or if the address names an unknown run, show why and return None.
    """
    rows = training_names()
    run = _run_of_address(rows)
    training = run if run is not None and run.kind == "train" else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.title(page, anchor=False, width="content")
        st.space("stretch")
        beside = st.container(width="content")
        if training is not None:
            _show_choice(page, training, rows)
    if run is not None:
        unreadable_settings.show(run)
    if training is None:
        _show_why_none(run, rows)
    return training, beside


def _run_of_address(rows: Sequence[RunName]) -> RunRow | None:
    """Return the run in the address, else the training run seen last, else the newest, if there is one."""
    named = st.query_params.get("run")
    wanted = named or st.session_state.get("last-run")
    run = ask(runs.get_run, wanted) if wanted else None
    if not named and (run is None or run.kind != "train"):
        run = ask(runs.get_run, rows[0].run_id) if rows else None
    return run


def _show_why_none(run: RunRow | None, rows: Sequence[RunName]) -> None:
    if run is not None and run.kind == UNREADABLE_KIND:
        return
    if run is not None:
        empty_state.show("replay", "Not a training run", "This job has no buffer and no trajectories.")
    elif rows:
        empty_state.show_no_such_run()
    else:
        empty_state.show("replay", "No runs yet", "Set up your first one under **New run**.", "exgrpo demo")


def _show_choice(page: str, run: RunRow, rows: Sequence[RunName]) -> None:
    st.query_params["run"] = st.session_state["last-run"] = run.run_id
    names = distinct_names(({row.run_id: row.name for row in rows} | {run.run_id: run.name}).items())
    ids = list(names)
    browser_title.show(page, run.name)
    st.session_state[_KEY] = run.run_id
    st.selectbox(
        "Run",
        ids,
        format_func=typed_run.label_by(names),
        key=_KEY,
        on_change=_choose,
        args=(ids,),
        accept_new_options=True,
        placeholder=typed_run.PLACEHOLDER,
        label_visibility="collapsed",
        width=300,
    )


def _choose(offered: list[str]) -> None:
    chosen = typed_run.find(st.session_state[_KEY] or "", offered)
    if chosen is None:
        return
    st.session_state["last-run"] = chosen
    address.put({**dict.fromkeys(_RUN_PARAMETERS), "run": chosen})
