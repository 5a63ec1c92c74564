"""A known Ray cluster: the button that tests it, and what it last answered in this session."""

import pandas as pd
import streamlit as st

from app import requests
from app.components.widgets import notice
from app.formats import escape_control_characters, literal
from app.requests import RayClusterState, UserError

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
        return requests.ask_cluster(name)
    except UserError as error:
        return str(error)


def _show_state(state: RayClusterState) -> None:
    num_gpus = sum(machine.num_gpus for machine in state.machines)
    num_used = sum(machine.num_used_gpus for machine in state.machines)
    st.markdown(
        f":green[:material/check_circle:] Ray {literal(state.ray_version)}, {len(state.machines)} "
        f"machine{'' if len(state.machines) == 1 else 's'}, {num_gpus - num_used} of {num_gpus} GPUs free"
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
    st.dataframe(machines, hide_index=True, alt="Machines of the cluster")
    jobs = ", ".join(state.running_jobs) or "none"
    st.text(escape_control_characters(f"Jobs that run or wait: {jobs}"))
