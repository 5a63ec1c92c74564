"""The Ray cluster that a new run is sent to: its GPUs as it last answered, beside those that the run takes."""

import streamlit as st

from app import requests
from app.components.widgets import ray_cluster
from app.formats import literal
from app.requests import TrainSpec


def show(spec: TrainSpec) -> None:
    """Show the cluster where the System page knows its address, else nothing."""
    address = spec.verl.ray.address
    name = next((name for name, known in requests.list_clusters().items() if known == address), None)
    if address is None or name is None:
        return
    with st.container(border=True, key="run-cluster"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(f"**Cluster {literal(name)}**", width="stretch")
            ray_cluster.show_test(name, address)
        nodes = f"{spec.verl.num_nodes} machine{'' if spec.verl.num_nodes == 1 else 's'}"
        st.caption(f"GPUs that the run takes: {spec.verl.gpus_per_node} on each of {nodes}.")
        state = ray_cluster.show_answer(name, address)
        if state is not None and (problem := _problem(spec, state)):
            st.caption(f":orange[:material/warning:] {problem}")


def _problem(spec: TrainSpec, state: requests.RayClusterState) -> str:
    """Return why the cluster would refuse the run at present, nothing where it would not."""
    wanted, num_nodes = spec.verl.gpus_per_node, spec.verl.num_nodes
    if sum(machine.num_gpus >= wanted for machine in state.machines) < num_nodes:
        return "The cluster has not as many GPUs on as many machines."
    if sum(machine.num_gpus - machine.num_used_gpus >= wanted for machine in state.machines) < num_nodes:
        return "Too few of them are free at present: the cluster would refuse the run. Launch it later."
    return ""
