"""What waits, what runs, and how busy this machine's GPUs are, in one line."""

from collections.abc import Mapping

import streamlit as st

from app import commands
from app.formats import byte_size, literal
from app.queries import RunFilter, list_runs

_GPU_SECONDS = 5.0
_BUSY_PERCENT = 5.0


def show(num_runs: Mapping[str, int]) -> None:
    """Show the queue, told from the runs in each state, and the GPUs."""
    st.caption(f"{queue_sentence(num_runs)} · {gpu_sentence()}", width="content")


def queue_sentence(num_runs: Mapping[str, int]) -> str:
    """Return how many runs are under way and how many wait, with the one that comes next."""
    under_way = sum(num_runs.get(state, 0) for state in ("starting", "running", "stopping"))
    waiting = num_runs.get("queued", 0)
    queued = list_runs(RunFilter(statuses=("queued",))) if waiting else ()
    if not queued:
        return f"{under_way:,} under way, nothing in the queue"
    return f"{under_way:,} under way, {waiting:,} in the queue, next: {literal(queued[-1].name)}"


def gpu_sentence() -> str:
    """Return how many of the GPUs are busy, and how full their memory is."""
    found = _gpus()
    if not found:
        return "no GPU on this machine"
    num_busy = sum((gpu.busy_percent or 0.0) > _BUSY_PERCENT for gpu in found)
    used, total = sum(gpu.used_bytes for gpu in found), sum(gpu.total_bytes for gpu in found)
    return f"{num_busy} of {len(found)} GPUs busy, {byte_size(used)} of {byte_size(total)} in use"


@st.cache_data(ttl=_GPU_SECONDS, show_spinner=False)
def _gpus() -> list[commands.Gpu]:
    return commands.list_gpus()
