"""Set up a run and launch it."""

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from exgrpo.app.components.new_run import data_preview, form_check, form_state, spec_form, spec_summary, starting_point
from exgrpo.app.components.new_run.starting_point import StartingPoint
from exgrpo.app.components.widgets import notice
from exgrpo.app.settings import runs_root
from exgrpo.jobs.actions import branching, queueing
from exgrpo.jobs.actions.preflight.resolution import Preflight
from exgrpo_core.errors import UserError


def _launch(checked: Preflight, start: StartingPoint, refused: DeltaGenerator) -> None:
    try:
        if start.branched is None:
            run_id = queueing.queue_checked(runs_root(), checked, parent_run_id=start.parent)
        else:
            run_id = branching.queue_branch(runs_root(), *start.branched, checked)
    except UserError as error:
        with refused:
            notice.show("error", "Could not launch", str(error))
    else:
        form_state.forget()
        st.switch_page("app_pages/run.py", query_params={"run": run_id})


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.title("New run", anchor=False, width="content")
    opened = form_state.show_drafts()
if opened is not None:
    st.switch_page("app_pages/new_run.py", query_params={form_state.DRAFT_ADDRESS: opened})
form, summary = st.columns([5, 3], gap="large")
with form:
    start = starting_point.choose()
    state = form_state.open_form(start.values, start.key)
    checked = form_check.check(state.content, spec_form.text_mistake(), start.branched)
    unmended = start.unmended(state.content)
    marked = [*checked.mistakes, *unmended]
    where = spec_form.show_where(state, marked)
    spec_form.open_first(state, [*unmended, *start.unfilled(checked.mistakes)])
    spec_form.show(state, where, marked)
    if checked.spec is not None and not checked.mistakes:
        data_preview.show(checked.spec)
        data_preview.show_look(checked.spec)
form_state.keep_in_address(state)
with summary, st.container(key="new-run-summary"):
    is_launched, refused = spec_summary.show(checked, state, start)
if is_launched and checked.preflight is not None:
    _launch(checked.preflight, start, refused)
if checked.spec is not None and not checked.mistakes:
    with form:  # at the end, because it draws as long as the model answers
        data_preview.show_probe(checked.spec)
