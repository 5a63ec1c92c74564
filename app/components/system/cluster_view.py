"""The known Ray clusters: add, test and remove one; GPUs and jobs of those that were tested."""

from collections.abc import Callable

import streamlit as st

from app import requests
from app.components.widgets import empty_state, notice, ray_cluster
from app.formats import literal
from app.requests import UserError


def show() -> None:
    """Show the clusters and the form that adds one; a cluster is asked only when Test is pressed."""
    clusters = requests.list_clusters()
    st.caption(
        "New run offers these clusters. Addresses are of Ray's Jobs API; the token is read from "
        "`EXGRPO_RAY_TOKEN` of the workbench. Nothing is sent to a cluster before you press Test or start a run there."
    )
    if fault := requests.find_cluster_fault():
        notice.show("warning", "Clusters cannot be read", fault)
    elif not clusters:
        empty_state.show("hub", "No clusters yet", "Add the address that `ray start --head` prints for its dashboard.")
    for name, address in clusters.items():
        _show_cluster(name, address)
    with st.form("add-cluster", clear_on_submit=False), st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.text_input("Name", key="cluster-name", max_chars=80)
        address = st.text_input("Address", key="cluster-address", placeholder="http://127.0.0.1:8265")
        is_added = st.form_submit_button("Add cluster", icon=":material/add:")
    if is_added and _do(lambda: requests.save_cluster(name, address)):
        st.rerun()


def _show_cluster(name: str, address: str) -> None:
    with st.container(border=True, key=f"cluster-{name}"):
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown(f"**{literal(name)}** &nbsp; :gray[{literal(address)}]", width="stretch")
            ray_cluster.show_test(name, address)
            if st.button("Remove", icon=":material/delete:", type="tertiary", key=f"remove-{name}") and _do(
                lambda: requests.delete_cluster(name)
            ):
                st.rerun()
        ray_cluster.show_answer(name, address)


def _do(action: Callable[[], object]) -> bool:
    """Carry out an action and return whether it was done; a refusal is shown."""
    try:
        action()
    except UserError as error:
        notice.show("error", "Refused", str(error))
        return False
    return True
