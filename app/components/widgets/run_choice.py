"""Runs chosen by name and kept in the address: the one of a page, in its head, and those that are compared."""

from collections.abc import Callable, Collection, Mapping, Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import address, settings
from app.components.widgets import notice, page_frame
from app.formats import escape_control_characters, literal
from app.queries.answers import ask
from app.queries.runs import training_names
from db.queries import runs, selections
from db.queries.runs import RunName
from db.rows.display_names import distinct_names
from db.rows.runs import RunRow
from db.rows.spec_fields import UNREADABLE_KIND, experience_ratio
from exgrpo_core.errors import InputError
from jobs.actions import run_bin

MAX_COMPARED = 20
PLACEHOLDER = "Choose a run, or type to find an older one"


def label_by(names: Mapping[str, str]) -> Callable[[str | None], str]:
    """Return the function that labels a run's id in a choice: with its name, or unchanged if it was typed."""
    return lambda run_id: escape_control_characters(names.get(run_id or "", run_id or ""))


def find_run(typed: str, offered: Collection[str], *, has_steps: bool = False) -> str | None:
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
    st.toast(f"No training run is called, or has in its name, method, data or tags: {literal(typed)}")
    return None


_KEY = "run-choice"
_RUN_PARAMETERS = ("trajectory", "question", "mark")
"""Parameters of the address that are valid for one run only."""


def show_header(page: str, about: str = "", *, replays: bool = False) -> tuple[RunRow | None, DeltaGenerator]:
    """Show the page's title and the choice of its run; return the run, and a container next to it for other choices.

    `about` says below the title what the page shows and why.

    The run is the one in the address, else the one seen last or the newest: one that shows something here, where
    there is any, which takes rollouts and, with `replays`, replayed ones. The tab is named after it. Without runs, or
    if the address names an unknown run, show why and return None.
    """
    rows = training_names()
    run = _run_of_address(rows, replays)
    training = run if run is not None and run.kind == "train" else None
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.title(page, anchor=False, width="content")
        st.space("stretch")
        beside = st.container(width="content")
        if training is not None:
            _show_choice(page, training, rows)
    if about:
        st.caption(about)
    if run is not None:
        notice.show_unreadable_settings(run)
        notice.show_left_out(run)
    if training is None:
        _show_why_none(run, rows)
    return training, beside


def _run_of_address(rows: Sequence[RunName], replays: bool) -> RunRow | None:
    """Return the run in the address, else the training run seen last or the newest, with what the page shows."""
    if named := st.query_params.get("run"):
        return ask(runs.get_run, named)
    seen = ask(runs.get_run, st.session_state.get("last-run", ""))
    seen = seen if seen is not None and seen.kind == "train" else None
    if seen is not None and _may_show(seen, replays):
        return seen
    may_show = None
    for row in rows:
        if _may_show(row, replays):
            if not replays or ask(selections.steps_with_replays, row.run_id):
                return ask(runs.get_run, row.run_id)
            may_show = may_show or row
    chosen = may_show or seen or next(iter(rows), None)
    return ask(runs.get_run, chosen.run_id) if chosen is not None else None


def _may_show(row: RunName | RunRow, replays: bool) -> bool:
    """Whether a run has rollouts and, with `replays`, may have replayed some; fine-tuning has none."""
    if not row.step:
        return False
    spec = ask(runs.run_spec, row.run_id)
    return experience_ratio(spec) > 0.0 if replays else not spec.get("sft")


def _show_why_none(run: RunRow | None, rows: Sequence[RunName]) -> None:
    if run is not None and run.kind == UNREADABLE_KIND:
        return
    if run is not None:
        notice.show_empty("replay", "Not a training run", "This run has no buffer and no trajectories.")
    elif rows:
        notice.show_no_such_run()
    else:
        notice.show_empty("replay", "No runs yet", "Set up your first one under **New run**.", "exgrpo demo")


def _show_choice(page: str, run: RunRow, rows: Sequence[RunName]) -> None:
    st.query_params["run"] = st.session_state["last-run"] = run.run_id
    names = distinct_names(({row.run_id: row.name for row in rows} | {run.run_id: run.name}).items())
    ids = list(names)
    page_frame.show_title(page, run.name)
    st.session_state[_KEY] = run.run_id
    st.selectbox(
        "Run", ids, format_func=label_by(names), key=_KEY, on_change=_choose, args=(ids,), accept_new_options=True,
        placeholder=PLACEHOLDER, label_visibility="collapsed", width=300,
    )  # fmt: skip


def _choose(offered: list[str]) -> None:
    chosen = find_run(st.session_state[_KEY] or "", offered)
    if chosen is None:
        return
    st.session_state["last-run"] = chosen
    address.put({**dict.fromkeys(_RUN_PARAMETERS), "run": chosen})


_COMPARED_KEY = "runs-choice"
_COMPARED_ADDRESS = "runs"


def choose_compared() -> dict[str, tuple[RunRow, str]]:
    """Show the choice and return the chosen training runs by id, in their order, each with the name to show."""
    chosen = _chosen()
    offered = {row.run_id: row.name for row in training_names()} | {row.run_id: row.name for row in chosen}
    names = distinct_names(offered.items())
    st.session_state[_COMPARED_KEY] = [row.run_id for row in chosen]
    st.multiselect(
        "Runs to compare", list(names), format_func=label_by(names), max_selections=MAX_COMPARED, key=_COMPARED_KEY,
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
        wanted = st.session_state.get("last-compared") or _all_of_view()
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


def _all_of_view() -> list[str]:
    """Return the first runs of `exgrpo view A B`, which was asked to show them side by side; none of a workbench."""
    return [row.run_id for row in training_names()[:MAX_COMPARED]] if settings.current().is_view else []


def _choose_compared(offered: Sequence[str]) -> None:
    run_ids = [find_run(chosen, offered) for chosen in st.session_state[_COMPARED_KEY]]
    st.session_state["last-compared"] = list(dict.fromkeys(run_id for run_id in run_ids if run_id))
    address.put(compared_parameters(st.session_state["last-compared"]))
