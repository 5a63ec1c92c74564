"""The workbench itself: supervisor, queue, machine, database, versions, and the audit log."""

from pathlib import Path

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.components.system import system_view
from exgrpo.app.components.widgets import address_choice, figures, page_frame
from exgrpo.app.formats import ago, byte_size, counted, duration, escape_control_characters, exact
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.runs import SUPERVISOR_LOST_SECONDS
from exgrpo.db.queries import runs
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.queries.runs import database_facts
from exgrpo.jobs.machine.hardware import list_gpus
from exgrpo.jobs.machine.machine_report import Check, examine_machine, package_versions
from exgrpo.jobs.runs.journal import Journal
from exgrpo.jobs.runs.state import newest_heartbeat
from exgrpo_core.recording.run_status import LIVE

REFRESH_SECONDS = 5
CHECK_SECONDS = 600
VIEWS = ["Overview", "Machine", "Audit log"]


def _overview() -> None:
    heartbeat = newest_heartbeat(settings.runs_root())
    age = None if heartbeat is None else heartbeat.age_seconds
    is_alive = age is not None and age <= SUPERVISOR_LOST_SECONDS
    facts = ask(database_facts)
    state = "running" if is_alive else "not running" if heartbeat else "never ran"
    beat = f"heartbeat {duration(age)} ago" if age is not None else None
    process = f"Process {heartbeat.pid}, started {exact(heartbeat.since)}" if heartbeat else "Start it with: exgrpo up"
    num_runs = ask(runs.count_runs, RunFilter(is_archived=None))
    num_running = sum(num_runs.get(state, 0) for state in LIVE[1:])
    queue = "Queue", f"{num_runs.get('queued', 0):,} queued", f"{num_running:,} running"
    database = "Database", facts.kind, byte_size(facts.num_bytes), counted(facts.num_runs, "unarchived run")
    figures.show_tiles([("Supervisor", state, beat, process), database, queue])
    st.text(escape_control_characters(f"Runs root {settings.runs_root()}, database {facts.url}"))
    if is_alive and heartbeat and heartbeat.since:
        st.caption(f"The supervisor has been running for {ago(heartbeat.since).removesuffix(' ago')}.")
    st.page_link("app_pages/runs.py", label="Active runs", icon=":material/list_alt:", query_params={"state": "Active"})
    st.subheader("Users", anchor=False)
    st.caption(page_frame.access_sentence())


@st.cache_data(ttl=CHECK_SECONDS, show_spinner="Checking this machine and its engines")
def _findings(runs_root: Path) -> list[Check]:
    return examine_machine(runs_root, settings.current().database_url)


def _machine() -> None:
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader("Engines and what they need", anchor=False, width="content")
        if st.button("Check again", icon=":material/refresh:", key="check-again"):
            _findings.clear()
    system_view.show_findings(_findings(settings.runs_root()))
    st.subheader("GPUs", anchor=False)
    system_view.show_gpus(list_gpus())
    system_view.show_versions(package_versions())


def _audit_log() -> None:
    names = {run.run_id: run.name for run in ask(runs.list_run_names, RunFilter(is_archived=None), limit=None)}
    system_view.show_log(Journal(settings.runs_root()).entries(), names)


with st.container(horizontal=True, vertical_alignment="center"):
    st.title("System", anchor=False, width="content")
name, tab = address_choice.tabs(VIEWS)
with tab:
    view = dict(zip(VIEWS, (_overview, _machine, _audit_log), strict=True))[name]
    st.fragment(view, run_every=REFRESH_SECONDS if name == VIEWS[0] else None)()
