"""Runs chosen by name and kept in the address: the one of a page, and those that are compared."""

from collections.abc import Callable, Collection, Mapping, Sequence

import streamlit as st

from exgrpo.app import address, settings
from exgrpo.app.components.widgets import address_choice, notice
from exgrpo.app.formats import escape_control_characters, literal
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import training_names
from exgrpo.db.queries import runs
from exgrpo.db.rows.display_names import distinct_names
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions import run_bin
from exgrpo_core.errors import InputError

MAX_COMPARED = 20
_PLACEHOLDER = "Choose a run, or type to find an older one"


def select(
    label: str, names: Mapping[str, str], parameter: str, chosen: str, key: str, *, has_steps: bool = False
) -> None:
    """Show a choice among training runs by name, and of any other that is typed; another is written into the address.

    `names` may have an empty id for something else than a run.
    """
    st.session_state[key] = chosen

    def take() -> None:
        found = _find_run(st.session_state[key] or "", names, has_steps=has_steps)
        if found is not None:
            address.put({parameter: found or None})

    st.selectbox(
        label, list(names), format_func=_label_by(names), key=key, on_change=take, accept_new_options=True,
        placeholder=_PLACEHOLDER,
    )  # fmt: skip


def _label_by(names: Mapping[str, str]) -> Callable[[str | None], str]:
    """Return what labels a run's id in a choice: with its name, or unchanged if it was typed."""
    return lambda run_id: escape_control_characters(names.get(run_id or "", run_id or ""))


def _find_run(typed: str, offered: Collection[str], *, has_steps: bool = False) -> str | None:
    """Return the id of the run that was chosen or typed: one that is offered, an id, or the newest with those words.

    If no run matches, or what was typed cannot be searched for, show a message and return None.
    """
    if typed in offered:
        return typed
    row = ask(runs.get_run, typed)
    if row is not None and row.kind == "train":
        return row.run_id
    try:
        matches = training_names(typed, has_steps=has_steps) if typed.strip() else []
    except InputError as error:
        st.toast(literal(str(error)))
        return None
    if matches:
        return matches[0].run_id
    st.toast(f"No training run is called, or has in its name, method, data, tags or notes: {literal(typed)}")
    return None


_KEY = "run-choice"


def show(run: RunRow, tabs_of: Callable[[RunRow], Collection[str]]) -> None:
    """Show the choice of the page's run; the tab that is open stays open where the chosen run has it too."""
    rows = training_names()
    names = distinct_names(({row.run_id: row.name for row in rows} | {run.run_id: run.name}).items())
    ids = list(names)
    st.session_state[_KEY] = run.run_id
    st.selectbox(
        "Run", ids, format_func=_label_by(names), key=_KEY, on_change=_choose, args=(ids, tabs_of),
        accept_new_options=True, placeholder=_PLACEHOLDER, label_visibility="collapsed", width=220,
    )  # fmt: skip


def _choose(offered: list[str], tabs_of: Callable[[RunRow], Collection[str]]) -> None:
    chosen = _find_run(st.session_state[_KEY] or "", offered)
    row = ask(runs.get_run, chosen) if chosen is not None else None
    if row is not None:
        is_kept = st.query_params.get(address_choice.VIEW) in tabs_of(row)
        tab = () if is_kept else address_choice.of_tab()
        address.put({**dict.fromkeys((*address_choice.OF_ONE_RUN, *tab)), "run": row.run_id})


_COMPARED_KEY = "runs-choice"
_COMPARED_ADDRESS = "runs"


def choose_compared() -> dict[str, tuple[RunRow, str]]:
    """Show the choice and return the chosen training runs by id, in their order, each with the name to show."""
    chosen = _chosen()
    offered = {row.run_id: row.name for row in training_names()} | {row.run_id: row.name for row in chosen}
    names = distinct_names(offered.items())
    st.session_state[_COMPARED_KEY] = [row.run_id for row in chosen]
    st.multiselect(
        "Runs to compare", list(names), format_func=_label_by(names), max_selections=MAX_COMPARED, key=_COMPARED_KEY,
        on_change=_choose_compared, args=(list(names),), accept_new_options=True, select_all=False,
        placeholder=f"Choose two to {MAX_COMPARED} runs, or type to find older ones", label_visibility="collapsed",
    )  # fmt: skip
    return {row.run_id: (row, names[row.run_id]) for row in chosen}


def compared_parameters(run_ids: Sequence[str]) -> dict[str, str]:
    """Return the parameters of the address for a choice of runs."""
    return {_COMPARED_ADDRESS: ",".join(run_ids)}


def _chosen() -> list[RunRow]:
    named = st.query_params.get(_COMPARED_ADDRESS)
    wanted = list(dict.fromkeys(word for word in (named or "").split(",") if word))
    if named is None:
        wanted = st.session_state.get("last-compared", [])
        if not wanted and settings.current().is_view:  # `exgrpo view A B` was asked to show them side by side
            wanted = [row.run_id for row in training_names()[:MAX_COMPARED]]
        st.query_params.update(compared_parameters(wanted) if wanted else {})
    looked_up = [(run_id, ask(runs.get_run, run_id)) for run_id in wanted]
    rows = [row for _, row in looked_up if row is not None and row.kind == "train"]
    left_out = [run_id for run_id, row in looked_up if row is None or row.kind != "train"]
    if left_out:
        deleted = run_bin.list_deleted(settings.runs_root())
        words = ", ".join(f"{run_id} (in the bin)" if run_id in deleted else run_id for run_id in left_out)
        notice.show("warning", "Left out", f"No training run of this workbench: {words}")
    if len(rows) > MAX_COMPARED:
        notice.show("warning", "Too many", f"Of {len(rows)} runs in the address the first {MAX_COMPARED} are compared.")
    st.session_state["last-compared"] = [row.run_id for row in rows[:MAX_COMPARED]]
    return rows[:MAX_COMPARED]


def _choose_compared(offered: Sequence[str]) -> None:
    run_ids = [_find_run(chosen, offered) for chosen in st.session_state[_COMPARED_KEY]]
    st.session_state["last-compared"] = list(dict.fromkeys(run_id for run_id in run_ids if run_id))
    address.put(compared_parameters(st.session_state["last-compared"]))
