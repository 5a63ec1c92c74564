"""The selection audit: what a step chose for replay, checked against its records."""

import streamlit as st

from app import address
from app.components.replay_buffer import what_if
from app.components.trajectories import audit_view
from app.components.widgets import empty_state, no_replay, run_choice
from app.queries.answers import ask
from app.queries.selections import wrong_choices
from db.queries import runs, selections
from db.rows.algorithm_of_spec import algorithm_settings, experience_ratio
from db.rows.runs import RunRow
from exgrpo_core.methods.protocols import TrajectorySelector


def _step(steps: list[int]) -> int:
    """Show the choice of a step that replayed, and return it; the newest by default."""
    if len(steps) == 1:
        st.caption(f"Step {steps[0]:,}, the only one that replayed")
        return steps[0]
    wanted = st.query_params.get("step", "")
    st.session_state["audited-step"] = int(wanted) if wanted in map(str, steps) else steps[-1]
    return st.select_slider("Step", steps, key="audited-step", on_change=_take)


def _take() -> None:
    address.put({"step": str(st.session_state["audited-step"])})


def _show(row: RunRow, estimator: TrajectorySelector | None, num_wanted: int) -> None:
    steps = ask(selections.steps_with_selections, row.run_id)
    if not steps:
        empty_state.show("fact_check", "Nothing was replayed yet", "The audit begins with the first step that replays.")
        return
    step = _step(steps)
    with st.spinner("Checking tokens", show_time=False):
        rows = audit_view.audit(row.run_id, step, estimator, num_wanted)
    audit_view.show_verdict(rows, wrong_choices(row.run_id), step)
    wanted = st.query_params.get("question")
    opened = next((row for row in rows if str(row.selection.question_index) == wanted), None)
    audit_view.show_table(rows, step, opened)
    if opened is not None:
        audit_view.show_one(opened)
    elif wanted:
        empty_state.show(
            "search_off", "Not drawn in this step", "This step did not replay the question in the address."
        )


run, _ = run_choice.show_header("Selection audit")
if run is not None:
    spec = ask(runs.run_spec, run.run_id)
    if not experience_ratio(spec):
        no_replay.show(run)
    else:
        algorithm = algorithm_settings(spec)
        _show(run, what_if.selector_of(algorithm), algorithm["replays_per_group"])
