"""The first question of a new run: where does it run, and what that needs."""

from collections.abc import Mapping
from enum import StrEnum

import streamlit as st

from app import requests
from app.components.new_run.form_state import FormState
from app.formats import byte_size

_ENGINE, _ADDRESS = "engine", "verl.ray.address"


class Where(StrEnum):
    """Where a run's processes are."""

    MACHINE = "This machine's processor or GPU"
    GPUS = "This machine's GPUs"
    CLUSTER = "A Ray cluster"


CAPTIONS = {Where.MACHINE: "embedded engine, one process", Where.GPUS: "verl", Where.CLUSTER: "verl"}
FIELDS = {
    Where.MACHINE: ("model.device",),
    Where.GPUS: ("verl.gpus_per_node", "verl.rollout"),
    Where.CLUSTER: ("verl.ray.address", "verl.num_nodes", "verl.gpus_per_node"),
}
"""What each choice needs to know; the fields are beside the question instead of in their sections."""


def where_of(state: FormState) -> Where:
    """Return where the specification says that the run is."""
    if state.value(_ENGINE) != "verl":
        return Where.MACHINE
    return Where.GPUS if state.value(_ADDRESS) is None else Where.CLUSTER


def show(state: FormState) -> Where:
    """Show the question and return the answer; a change is written into the form."""
    key = f"{state.origin}-where"
    st.session_state[key] = where_of(state).value
    st.radio(
        "Where does it run?",
        [where.value for where in Where],
        captions=[CAPTIONS[where] for where in Where],
        horizontal=True,
        key=key,
        on_change=_take,
        args=(state, key),
    )
    where = where_of(state)
    st.caption(_needs(where))
    if where is Where.CLUSTER:
        _offer_clusters(state)
    return where


def _offer_clusters(state: FormState) -> None:
    """Offer the clusters of the System page; a choice is written into the address."""
    clusters = requests.list_clusters()
    if not clusters:
        st.caption("The page System, Ray clusters, keeps addresses.")
        return
    key = f"{state.origin}-cluster"
    chosen = next((name for name, address in clusters.items() if address == state.value(_ADDRESS)), None)
    st.session_state[key] = chosen
    st.selectbox(
        "Cluster", list(clusters), index=None, key=key, placeholder="Another address", on_change=_take_cluster,
        args=(state, key, clusters), width=420,
    )  # fmt: skip


def _take_cluster(state: FormState, key: str, clusters: Mapping[str, str]) -> None:
    state.exchange(_ADDRESS, clusters.get(st.session_state[key] or "", ""))


def _take(state: FormState, key: str) -> None:
    where = Where(st.session_state[key])
    state.put(_ENGINE, "embedded" if where is Where.MACHINE else "verl")
    first = next(iter(requests.list_clusters().values()), "")
    state.exchange(_ADDRESS, first if where is Where.CLUSTER else None)


def _needs(where: Where) -> str:
    machine = requests.read_machine()
    gpus = f"{len(machine.gpus)} NVIDIA GPU{'' if len(machine.gpus) == 1 else 's'}" if machine.gpus else "no NVIDIA GPU"
    if where is Where.MACHINE:
        return (
            f"Here: {machine.num_processors} processors, {byte_size(machine.memory)} of memory, {gpus}. Takes the GPU "
            "if there is one."
        )
    if where is Where.GPUS:
        return f"Here: {gpus}. Needs verl's environment (`make verl-env GPU=1`) and as many GPUs as below."
    return (
        "Needs the address of the cluster's Jobs API and this project on its machines; a cluster's token is read from "
        f"`{requests.RAY_TOKEN_VARIABLE}` of the workbench."
    )
