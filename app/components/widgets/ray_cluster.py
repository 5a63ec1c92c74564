"""The known Ray clusters: add, test and remove one; what a tested one last answered in this session."""

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import grid, notice
from exgrpo.app.formats import counted, escape_control_characters, literal
from exgrpo.app.settings import runs_root
from exgrpo.jobs.actions import named_entries
from exgrpo.jobs.runs.launchers.ray_jobs_api import RayClusterState
from exgrpo_core.errors import UserError

_ANSWERS = "cluster-answers"
"""The newest answer, or why there is none, of each cluster that was tested in this session, by name and address."""


def show_test(name: str, address: str) -> None:
    """Show the button that asks the cluster; nothing is sent before."""
    if st.button("Test", icon=":material/network_check:", key=f"test-{name}"):
        with st.spinner("Asking the cluster"):
            st.session_state.setdefault(_ANSWERS, {})[name, address] = _ask(name)


def show_answer(name: str, address: str) -> RayClusterState | None:
    """Show the newest answer or why there is none; return it, None without one."""
    answer: RayClusterState | str | None = st.session_state.get(_ANSWERS, {}).get((name, address))
    if isinstance(answer, str):
        notice.show("error", "No answer", answer)
        return None
    if answer is not None:
        _show_state(answer)
    return answer


def _ask(name: str) -> RayClusterState | str:
    try:
        return named_entries.ask_cluster(runs_root(), name)
    except UserError as error:
        return str(error)


def _show_state(state: RayClusterState) -> None:
    num_gpus = sum(machine.num_gpus for machine in state.machines)
    num_used = sum(machine.num_used_gpus for machine in state.machines)
    st.markdown(
        f":green[:material/check_circle:] Ray {literal(state.ray_version)}, "
        f"{counted(len(state.machines), 'machine')}, {num_gpus - num_used} of {num_gpus} GPUs free"
    )
    for problem in state.problems:
        notice.show("warning", "Before a run", problem)
    machines = pd.DataFrame(
        {
            "Machine": [escape_control_characters(machine.name) for machine in state.machines],
            "GPUs": [machine.num_gpus for machine in state.machines],
            "In use": [machine.num_used_gpus for machine in state.machines],
        }
    )
    grid.draw(machines, "machines", "Machines of the cluster")
    jobs = ", ".join(state.running_jobs) or "none"
    st.text(escape_control_characters(f"Jobs that run or wait: {jobs}"))


def show_clusters() -> None:
    """Show the clusters and the form that adds one; a cluster is asked only when Test is pressed."""
    clusters = named_entries.list_clusters(runs_root())
    st.caption(
        "New run offers these clusters. Addresses are of Ray's Jobs API; the token is read from "
        "`EXGRPO_RAY_TOKEN` of the workbench. Nothing is sent to a cluster before you press Test or start a run there."
    )
    if fault := named_entries.RAY_CLUSTERS.find_fault(runs_root()):
        notice.show("warning", "Clusters cannot be read", fault)
    elif not clusters:
        notice.show_empty("hub", "No clusters yet", "Add the address that `ray start --head` prints for its dashboard.")
    for name, address in clusters.items():
        _show_cluster(name, address)
    with st.form("add-cluster", clear_on_submit=False), st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.text_input("Name", key="cluster-name", max_chars=80)
        address = st.text_input("Address", key="cluster-address", placeholder="http://127.0.0.1:8265")
        is_added = st.form_submit_button("Add cluster", icon=":material/add:")
    if is_added:
        with notice.refusals("Refused"):
            named_entries.save_cluster(runs_root(), name, address)
            st.rerun()


def _show_cluster(name: str, address: str) -> None:
    with st.container(border=True, key=f"cluster-{name}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(f"**{literal(name)}** &nbsp; :gray[{literal(address)}]", width="stretch")
            show_test(name, address)
            if st.button("Remove", icon=":material/delete:", type="tertiary", key=f"remove-{name}"):
                with notice.refusals("Refused"):
                    named_entries.delete_cluster(runs_root(), name)
                    st.rerun()
        show_answer(name, address)
