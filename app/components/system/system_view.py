"""What this machine can run and how busy it is, and what users did, as recorded in the journal."""

import json
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import data_table, grid, long_lists, notice, run_state
from exgrpo.app.formats import NONE_SHOWN, byte_size, escape_control_characters, literal
from exgrpo.app.queries.runs import list_runs
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.jobs.machine.hardware import Gpu, list_gpus
from exgrpo.jobs.machine.machine_report import Check
from exgrpo.jobs.runs.journal import JournalEntry
from exgrpo_core.recording.run_status import RunStatus

_RESULTS = {"ok": ("ok", "green", ""), "warning": ("note", "yellow", ""), "failure": ("not working", "red", "")}


def show_findings(findings: Sequence[Check]) -> None:
    """Show one row per finding, with what to do about it."""
    rows = pd.DataFrame(
        {
            "Checked": [finding.name for finding in findings],
            "Result": [[_RESULTS[finding.result][0]] for finding in findings],
            "Found": [escape_control_characters(finding.detail).replace("`", "") for finding in findings],
            "What to do": [
                escape_control_characters(finding.advice).replace("`", "") or NONE_SHOWN for finding in findings
            ],
        }
    )
    columns = {
        "Checked": st.column_config.TextColumn(width=100),
        "Result": run_state.column(_RESULTS, 100),
        "What to do": st.column_config.TextColumn(width="large"),
    }
    data_table.show(rows, "doctor", "Checks of exgrpo doctor", columns)


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
    data_table.show(rows, "gpus", "GPUs", {"Busy": share, "Memory in use": share})


def show_versions(versions: Mapping[str, str | None]) -> None:
    """Show the versions of packages in the workbench's environment."""
    rows = pd.DataFrame(
        {"Package": list(versions), "Version": [version or "not installed" for version in versions.values()]}
    )
    data_table.show_titled("Versions in the workbench's environment", rows, "versions", "Versions of packages")


_GPU_SECONDS = 5.0
_BUSY_PERCENT = 5.0


def show_line(num_runs: Mapping[str, int]) -> None:
    """Show the queue, counted from the runs in each state, and the GPUs."""
    st.caption(f"{queue_sentence(num_runs)} · {_gpu_sentence()}", width="content")


def queue_sentence(num_runs: Mapping[str, int]) -> str:
    """Return how many runs are running and how many are queued, with the next one."""
    running = sum(num_runs.get(state, 0) for state in (RunStatus.STARTING, RunStatus.RUNNING, RunStatus.STOPPING))
    waiting = num_runs.get(RunStatus.QUEUED, 0)
    queued = list_runs(RunFilter(statuses=(RunStatus.QUEUED,))) if waiting else ()
    if not queued:
        return f"{running:,} running, 0 queued"
    return f"{running:,} running, {waiting:,} queued, next: {literal(queued[-1].name)}"


def _gpu_sentence() -> str:
    gpus = _gpus()
    if not gpus:
        return "no GPU on this machine"
    num_busy = sum((gpu.busy_percent or 0.0) > _BUSY_PERCENT for gpu in gpus)
    used, total = sum(gpu.used_bytes for gpu in gpus), sum(gpu.total_bytes for gpu in gpus)
    return f"{num_busy} of {len(gpus)} GPUs busy, {byte_size(used)} of {byte_size(total)} in use"


@st.cache_data(ttl=_GPU_SECONDS, show_spinner=False)
def _gpus() -> list[Gpu]:
    return list_gpus()


_LOG_ROWS = 18
WORDS = {
    "submitted": "queued a run",
    "resume_asked": "requested resume",
    "stop_asked": "requested stop",
    "tagged": "tagged",
    "untagged": "untagged",
    "noted": "wrote a note",
    "archived": "archived",
    "unarchived": "unarchived",
    "renamed": "renamed",
    "deleted": "moved to the bin",
    "restored": "took out of the bin",
    "removed": "removed for good",
    "imported": "imported",
    "case_marked": "saved a case",
    "case_unmarked": "removed a case",
    "verdict_set": "gave a verdict",
    "verdict_cleared": "removed a verdict",
    "trajectory_marked": "marked a trajectory",
    "trajectory_unmarked": "removed a mark",
    "shut_down": "shut down, with runs queued",
}


class _LogKey(StrEnum):
    TIME = "time"
    USER = "user"
    ACTION = "action"
    RUN = "run"


_LOG_HEADS = {"When, UTC": _LogKey.TIME, "Who": _LogKey.USER, "What": _LogKey.ACTION, "Run": _LogKey.RUN}
_LOG_VALUES: dict[_LogKey, Callable[[JournalEntry, Mapping[str, str]], str]] = {
    _LogKey.USER: lambda entry, _: entry.by.lower(),
    _LogKey.ACTION: lambda entry, _: _what(entry),
    _LogKey.RUN: lambda entry, names: names.get(entry.run_id, entry.run_id).lower(),
}


def show_log(entries: Sequence[JournalEntry], names: Mapping[str, str]) -> None:
    """Show the entries, given oldest first, in the order of the address."""
    if not entries:
        notice.show_empty("history", "No entries yet", "Every launch, stop, tag and note is recorded here.")
        return
    newest_first = list(reversed(entries))
    order = long_lists.order_of_address(_LogKey)
    shown = newest_first if order is None or order.is_descending else entries
    if order is not None and order.key is not _LogKey.TIME:
        by = _LOG_VALUES[order.key]
        shown = sorted(newest_first, key=lambda entry: by(entry, names), reverse=order.is_descending)
    frame = table(shown[: long_lists.PAGE_SIZE * long_lists.num_pages(order)], names)
    sorting = long_lists.sorting(_LOG_HEADS, order, order, len(entries), "When, UTC", [*_LOG_HEADS][1:])
    data_table.export_above(
        lambda: table(newest_first, names).assign(**{"When, UTC": [entry.at for entry in newest_first]}), "audit-log"
    )
    grid.draw(frame, "audit-log", "What users did", most=_LOG_ROWS, sorting=sorting)


def table(entries: Sequence[JournalEntry], names: Mapping[str, str]) -> pd.DataFrame:
    """Return one row per entry; a run that the database does not know is named by its id."""
    return pd.DataFrame(
        {
            "When, UTC": [entry.at[:19].replace("T", " ") for entry in entries],
            "Who": [escape_control_characters(entry.by) for entry in entries],
            "What": [_what(entry) for entry in entries],
            "Run": [escape_control_characters(names.get(entry.run_id, entry.run_id)) for entry in entries],
            "Run id": [escape_control_characters(entry.run_id) for entry in entries],
            "Details": [escape_control_characters(_in_words(entry.data)) for entry in entries],
        }
    )


def _what(entry: JournalEntry) -> str:
    return WORDS.get(str(entry.kind), str(entry.kind).replace("_", " "))


def _in_words(data: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
    )
