"""How many runs are running and queued, and how busy this machine's GPUs are, in one line."""

from collections.abc import Mapping

import streamlit as st

from app import requests
from app.formats import byte_size, literal
from app.queries.runs import list_runs
from db.queries.run_filter import RunFilter

_GPU_SECONDS = 5.0
_BUSY_PERCENT = 5.0


def show(num_runs: Mapping[str, int]) -> None:
    """Show the queue, counted from the runs in each state, and the GPUs."""
    st.caption(f"{queue_sentence(num_runs)} · {gpu_sentence()}", width="content")


def queue_sentence(num_runs: Mapping[str, int]) -> str:
    """Return how many runs are running and how many are queued, with the next one."""
    running = sum(num_runs.get(state, 0) for state in ("starting", "running", "stopping"))
    waiting = num_runs.get("queued", 0)
    queued = list_runs(RunFilter(statuses=("queued",))) if waiting else ()
    if not queued:
        return f"{running:,} running, 0 queued"
    return f"{running:,} running, {waiting:,} queued, next: {literal(queued[-1].name)}"


def gpu_sentence() -> str:
    """Return how many of the GPUs are busy, and how full their memory is."""
    gpus = _gpus()
    if not gpus:
        return "no GPU on this machine"
    num_busy = sum((gpu.busy_percent or 0.0) > _BUSY_PERCENT for gpu in gpus)
    used, total = sum(gpu.used_bytes for gpu in gpus), sum(gpu.total_bytes for gpu in gpus)
    return f"{num_busy} of {len(gpus)} GPUs busy, {byte_size(used)} of {byte_size(total)} in use"


@st.cache_data(ttl=_GPU_SECONDS, show_spinner=False)
def _gpus() -> list[requests.Gpu]:
    return requests.list_gpus()
