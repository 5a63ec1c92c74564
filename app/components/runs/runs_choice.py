"""The runs that a page compares, chosen by name and kept in the address as `runs=a,b`."""

from collections.abc import Sequence

import streamlit as st

from app import address
from app.components.runs.comparison import MAX_RUNS
from app.components.widgets import notice, typed_run
from app.queries.answers import ask
from app.queries.runs import training_names
from db.queries import runs
from db.rows.display_names import distinct_names
from db.rows.runs import RunRow

_KEY = "runs-choice"
_ADDRESS = "runs"


def show() -> dict[str, tuple[RunRow, str]]:
    """Show the choice and return the chosen training runs by id, in their order, each with the name to show."""
    chosen = _chosen()
    offered = {row.run_id: row.name for row in training_names()} | {row.run_id: row.name for row in chosen}
    names = distinct_names(offered.items())
    st.session_state[_KEY] = [row.run_id for row in chosen]
    st.multiselect(
        "Runs to compare",
        list(names),
        format_func=typed_run.label_by(names),
        max_selections=MAX_RUNS,
        key=_KEY,
        on_change=_choose,
        args=(list(names),),
        accept_new_options=True,
        select_all=False,
        placeholder=f"Choose two to {MAX_RUNS} runs, or type to find older ones",
        label_visibility="collapsed",
    )
    return {row.run_id: (row, names[row.run_id]) for row in chosen}


def parameters(run_ids: Sequence[str]) -> dict[str, str]:
    """Return the parameters of the address for a choice of runs."""
    return {_ADDRESS: ",".join(run_ids)}


def _chosen() -> list[RunRow]:
    named = st.query_params.get(_ADDRESS)
    wanted = list(dict.fromkeys(word for word in (named or "").split(",") if word))
    if named is None:
        wanted = st.session_state.get("last-compared", [])
        st.query_params.update(parameters(wanted) if wanted else {})
    looked_up = [(run_id, ask(runs.get_run, run_id)) for run_id in wanted]
    rows = [row for _, row in looked_up if row is not None and row.kind == "train"]
    left_out = [run_id for run_id, row in looked_up if row is None or row.kind != "train"]
    if left_out:
        notice.show("warning", "Left out", f"No training run of this workbench: {', '.join(left_out)}")
    if len(rows) > MAX_RUNS:
        notice.show("warning", "Too many", f"The address names {len(rows)} runs; the first {MAX_RUNS} are compared.")
    st.session_state["last-compared"] = [row.run_id for row in rows[:MAX_RUNS]]
    return rows[:MAX_RUNS]


def _choose(offered: Sequence[str]) -> None:
    run_ids = [typed_run.find(chosen, offered) for chosen in st.session_state[_KEY]]
    st.session_state["last-compared"] = list(dict.fromkeys(run_id for run_id in run_ids if run_id))
    address.put(parameters(st.session_state["last-compared"]))
