"""Where a new run runs: the question, what the answer needs, and scripts for other machines."""

import os
from enum import StrEnum
from functools import partial

import psutil
import streamlit as st

from exgrpo.app.components.new_run.form_state import FormState
from exgrpo.app.formats import byte_size, counted, escape_control_characters, literal
from exgrpo.app.settings import runs_root
from exgrpo.jobs.actions.preflight.dry_run import dry_run_text
from exgrpo.jobs.actions.preflight.launch_scripts import ScriptKind, write_script
from exgrpo.jobs.actions.preflight.resolution import RunRefusedError
from exgrpo.jobs.machine.hardware import GPU_TYPES, list_gpus, type_of
from exgrpo.jobs.specs.train import SpecError, TrainSpec
from exgrpo.jobs.specs.verl import RAY_TOKEN_VARIABLE

_ENGINE, _ADDRESS, _GPU_GIB = "engine", "verl.ray.address", "verl.gpu_gib"


class Where(StrEnum):
    """Where a run's processes are."""

    MACHINE = "This machine's processor or GPU"
    GPUS = "This machine's GPUs"
    CLUSTER = "A cluster"


CAPTIONS = {
    Where.MACHINE: "embedded engine, one process",
    Where.GPUS: "verl",
    Where.CLUSTER: "verl, from here or by a script",
}
FIELDS = {
    Where.MACHINE: ("model.device",),
    Where.GPUS: ("verl.gpus_per_node",),
    Where.CLUSTER: ("verl.ray.address", "verl.num_nodes", "verl.gpus_per_node"),
}
"""What each choice needs to know; the fields are next to the question instead of in their sections."""


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
        "Where does it run?", [where.value for where in Where], captions=[CAPTIONS[where] for where in Where],
        horizontal=True, key=key, on_change=_take, args=(state, key),
    )  # fmt: skip
    where = where_of(state)
    st.caption(_needs(where))
    if where is Where.CLUSTER:
        _choose_gpu(state)
    return where


def _choose_gpu(state: FormState) -> None:
    """Show the choice of the cluster's GPU, for the estimates; its memory is written into the form."""
    key, gib = f"{state.origin}-gpu", state.value(_GPU_GIB)
    names = [gpu.name for gpu in GPU_TYPES]
    known = type_of(gib if isinstance(gib, int | float) else None)
    other = f"{gib} GiB"
    st.session_state[key] = known.name if known else other
    st.selectbox(
        "GPU", names if known else [other, *names], key=key, on_change=_take_gpu, args=(state, key), width=420,
        help="For the estimates of memory and time; it need not be at hand",
    )  # fmt: skip


def _take_gpu(state: FormState, key: str) -> None:
    chosen = next((gpu for gpu in GPU_TYPES if gpu.name == st.session_state[key]), None)
    if chosen is not None:
        state.exchange(_GPU_GIB, chosen.gib)


def _take(state: FormState, key: str) -> None:
    where = Where(st.session_state[key])
    state.put(_ENGINE, "embedded" if where is Where.MACHINE else "verl")
    state.exchange(_ADDRESS, "" if where is Where.CLUSTER else None)


def _needs(where: Where) -> str:
    num_gpus = len(list_gpus())
    gpus = counted(num_gpus, "NVIDIA GPU") if num_gpus else "no NVIDIA GPU"
    if where is Where.MACHINE:
        return (
            f"Here: {os.cpu_count() or 1} processors, {byte_size(psutil.virtual_memory().total)} of memory, {gpus}. "
            "Takes the GPU if there is one."
        )
    if where is Where.GPUS:
        return f"Here: {gpus}. Needs verl's environment (`make verl-env GPU=1`) and as many GPUs as below."
    return (
        "From here: needs the address of its Jobs API; its token is read from "
        f"`{RAY_TOKEN_VARIABLE}` of the workbench. By a script: needs none. "
        "Its machines need a checkout of this project."
    )


_ICON = ":material/download:"


def show_scripts(spec: TrainSpec) -> None:
    """Show what starts the run on other machines; this machine needs no GPU for it."""
    try:
        scripts = {kind: write_script(spec, runs_root(), kind) for kind in ScriptKind}
    except SpecError as error:
        if not isinstance(error, RunRefusedError):  # those are next to the button already
            st.caption(literal(f"To run it elsewhere: {error}"))
        return
    with st.container(border=True, key="run-elsewhere"):
        st.markdown("**Run it elsewhere**")
        st.caption("Each script holds this specification and needs a checkout with `make verl-env GPU=1` there.")
        with st.container(horizontal=True):
            for kind, label in ((ScriptKind.SHELL, "Shell script"), (ScriptKind.SLURM, "Slurm script")):
                st.download_button(
                    label, scripts[kind].text, file_name=scripts[kind].file_name, mime="application/x-sh", icon=_ICON,
                    on_click="ignore", key=f"elsewhere-{kind}",
                )  # fmt: skip
            st.download_button(
                "Dry run", partial(dry_run_text, spec, runs_root()), file_name="dry-run.txt", mime="text/plain",
                icon=_ICON, on_click="ignore", key="elsewhere-dry-run",
                help="Settings of verl, memory of each GPU, disk",
            )  # fmt: skip
        st.caption("As a job of a Ray cluster, from a folder that holds only the shell script:")
        st.code(escape_control_characters(scripts[ScriptKind.RAY].text.rstrip()), language=None, wrap_lines=True)
