"""The selection audit: what a step chose for replay, checked against its records, and what replays changed."""

from typing import Any

import streamlit as st

from app import address
from app.components.replay_buffer import what_if
from app.components.trajectories import audit_view, draw_effects_view
from app.components.widgets import empty_state, no_replay, run_choice, view_tabs
from app.queries.answers import ask
from app.queries.selections import wrong_choices
from db.queries import draw_effects, runs, selections
from db.rows.algorithm_of_spec import algorithm_settings, experience_ratio
from db.rows.runs import RunRow

VIEWS = ["Checks of a step", "Drawn against undrawn"]


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


def _checks(row: RunRow, algorithm: dict[str, Any]) -> None:
    steps = ask(selections.steps_with_selections, row.run_id)
    if not steps:
        empty_state.show("fact_check", "Nothing was replayed yet", "The audit begins with the first step that replays.")
        return
    step = _step(steps)
    with st.spinner("Checking tokens", show_time=False):
        estimator = what_if.selector_of(algorithm)
        rows = audit_view.audit(row.run_id, step, estimator, algorithm["replays_per_group"])
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


def _effects(row: RunRow, algorithm: dict[str, Any]) -> None:
    if algorithm["question_selection"] not in draw_effects_view.EVEN_WITHIN_BUCKETS:
        empty_state.show(
            "balance",
            "No experiment",
            f"`{algorithm['question_selection']}` does not draw by chance within a bucket, so drawn questions differ.",
        )
        return
    with st.spinner("Comparing questions", show_time=False):
        effects = ask(draw_effects.draw_effects, row.run_id, algorithm["rollouts_per_question"])
    draw_effects_view.show(effects)


run, _ = run_choice.show_header("Selection audit")
if run is not None:
    spec = ask(runs.run_spec, run.run_id)
    if not experience_ratio(spec):
        no_replay.show(run)
    else:
        name, tab = view_tabs.show(VIEWS)
        with tab:
            (_checks if name == VIEWS[0] else _effects)(run, algorithm_settings(spec))
