"""What this machine can run and how busy it is: findings, GPUs, versions, the queue."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from app import requests
from app.components.widgets import exports, status_badge
from app.formats import NONE_SHOWN, byte_size, escape_control_characters, literal
from app.queries.runs import list_runs
from app.requests import Finding, Gpu
from db.queries.run_filter import RunFilter

_RESULTS = {"ok": ("ok", "green", ""), "warning": ("note", "yellow", ""), "failure": ("not working", "red", "")}


def show_findings(findings: Sequence[Finding]) -> None:
    """Show one row per finding, with what to do about it."""
    rows = pd.DataFrame(
        {
            "Checked": [finding.name for finding in findings],
            "Result": [[_RESULTS[finding.result][0]] for finding in findings],
            "Found": [escape_control_characters(finding.detail) for finding in findings],
            "What to do": [escape_control_characters(finding.advice) or NONE_SHOWN for finding in findings],
        }
    )
    st.dataframe(
        rows,
        hide_index=True,
        key="findings",
        height="content",
        column_config={
            "Checked": st.column_config.TextColumn(width=100),
            "Result": status_badge.column(_RESULTS, 100),
            "Found": st.column_config.TextColumn(width="large"),
            "What to do": st.column_config.TextColumn(width="large"),
        },
        alt="Findings of exgrpo doctor",
    )
    exports.show(rows, "doctor")


def show_gpus(gpus: Sequence[Gpu]) -> None:
    """Show one row per GPU, or that there is none."""
    if not gpus:
        st.caption("No NVIDIA GPU on this machine. Small models train on the CPU.")
        return
    rows = pd.DataFrame(
        {
            "GPU": [gpu.index for gpu in gpus],
            "Name": [escape_control_characters(gpu.name) for gpu in gpus],
            "Busy": [gpu.busy_percent for gpu in gpus],
            "Memory in use": [100 * gpu.used_bytes / gpu.total_bytes for gpu in gpus],
            "Memory": [byte_size(gpu.total_bytes) for gpu in gpus],
        }
    )
    share = st.column_config.ProgressColumn(min_value=0, max_value=100, format="%.0f%%")
    st.dataframe(rows, hide_index=True, key="gpus", column_config={"Busy": share, "Memory in use": share}, alt="GPUs")
    exports.show(rows, "gpus")


def show_versions(versions: Mapping[str, str | None]) -> None:
    """Show the versions of packages in the workbench's environment."""
    rows = pd.DataFrame(
        {"Package": list(versions), "Version": [version or "not installed" for version in versions.values()]}
    )
    st.dataframe(rows, hide_index=True, key="versions", height="content", alt="Versions of packages")
    exports.show(rows, "versions")


_GPU_SECONDS = 5.0
_BUSY_PERCENT = 5.0


def show_line(num_runs: Mapping[str, int]) -> None:
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
