"""States and health as coloured badges, how far a run is, and what this session just asked of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Literal

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from exgrpo.app.formats import as_utc
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.runs import Badge, RunRow
from exgrpo.jobs.actions.progress import job_progress
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.state import read_state
from exgrpo_core.errors import UserError
from exgrpo_core.recording.run_status import LIVE, RunStatus

Colour = Literal["red", "orange", "yellow", "blue", "green", "violet", "gray"]
FAINT = "faint"
_HEX: dict[str, str] = {
    "gray": "#64748B",
    "blue": "#2F6FB5",
    "orange": "#B0601C",
    "green": "#1F7A5A",
    "red": "#B83A4B",
    "violet": "#7C4FB0",
    "yellow": "#8A6D10",
    FAINT: "rgba(127, 140, 160, 0.17)",
}

STATES: dict[str, tuple[str, Colour, str]] = {
    RunStatus.QUEUED: (RunStatus.QUEUED, "gray", "schedule"),
    RunStatus.STARTING: (RunStatus.STARTING, "blue", "rocket_launch"),
    RunStatus.RUNNING: (RunStatus.RUNNING, "blue", "play_circle"),
    RunStatus.STOPPING: (RunStatus.STOPPING, "orange", "pending"),
    RunStatus.STOPPED: (RunStatus.STOPPED, "gray", "stop_circle"),
    RunStatus.FINISHED: (RunStatus.FINISHED, "green", "check_circle"),
    RunStatus.FAILED: (RunStatus.FAILED, "red", "error"),
    RunStatus.LOST: (RunStatus.LOST, "violet", "help"),
    "growing": ("growing", "blue", "play_circle"),
    "imported": ("imported", "gray", "download_done"),
}

HEALTH: dict[Badge, tuple[str, Colour, str]] = {
    "no_reward": ("no reward", "orange", "No rollout was correct for many steps, so there is nothing to learn from."),
    "no_gradient": ("no gradient", "orange", "All rollouts of each question earned the same reward for many steps."),
    "empty_buffer": ("empty buffer", "orange", "The replay buffer holds no question, though some are left to collect."),
    "entropy_collapse": ("entropy collapse", "orange", "Policy entropy fell close to zero: rollouts hardly differ."),
    "stalled": ("stalled", "red", "Nothing was recorded for much longer than a step takes."),
    "not_finite": ("not finite", "red", "A loss or gradient is not a finite number."),
    "damaged": ("damaged", "red", "Files of the run differ from what was written; its page says which."),
    "not_shown": ("not shown", "orange", "The program could not show all of the run; its page says why."),
    "not_recorded": ("rows left out", "orange", "Not all that was to be recorded is in the run; its page says why."),
    "all_retired": (
        "all retired",
        "violet",
        "Every training question is retired, so none is left to replay: the run has learned its data.",
    ),
}


def show(row: RunRow, asked: str | None = None) -> None:
    """Show a run's state, or what was just asked of it, and its health badges side by side."""
    name, colour, icon = STATES.get(state_of(row), ("unknown", "gray", "help"))
    if asked is not None:
        name, colour, icon = asked.lower(), "blue", "pending"
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
        st.badge(name, icon=f":material/{icon}:", color=colour)
        for key in row.health:
            label, health_colour, explanation = HEALTH[key]
            st.badge(label, icon=":material/monitor_heart:", color=health_colour, help=explanation)


def state_of(row: RunRow) -> str:
    """Return the key of a run's state in `STATES`: imported files neither run nor stop."""
    if row.is_imported:
        return "growing" if is_live(row) else "imported"
    return row.status


def state_name(status: str) -> str:
    """Return the displayed name of a state."""
    return STATES.get(status, ("unknown", "gray", "help"))[0]


def column(badges: Mapping[Any, tuple[str, str, str]], width: int, explanation: str | None = None) -> ColumnConfig:
    """Return the column of a table whose cells are displayed names of `badges`, in their colours."""
    return st.column_config.MultiselectColumn(
        width=width, help=explanation, options=[name for name, _, _ in badges.values()],
        color=[_HEX[colour] for _, colour, _ in badges.values()],
    )  # fmt: skip


def is_live(row: RunRow) -> bool:
    """Whether the run may still change by itself."""
    return row.status in LIVE


def fraction(row: RunRow) -> float:
    """Return the share done of a run's steps, of an evaluation's questions or of a judge's votes, in [0, 1]."""
    done, num_pieces = pieces(row)
    total: float = num_pieces
    if row.kind == "train":  # may finish before its last step, by its budget of tokens
        total = 0.0 if row.status == RunStatus.FINISHED else done + row.steps_left
    return max(0.0, min(1.0, done / total)) if total else float(row.status == RunStatus.FINISHED)


def pieces(row: RunRow) -> tuple[int, int]:
    """Return how many steps, questions or votes are done, and of how many; 0 of 0 before they are counted."""
    if row.kind == "train":
        return max(row.step, row.branched_from_step or 0), row.num_steps
    return job_progress(runs_root(), row.run_id) or (0, 0)


def seconds_left(row: RunRow) -> float | None:
    """Return the remaining time at the pace so far; None unless the run is running."""
    if row.status != RunStatus.RUNNING:
        return None
    if row.kind == "train":
        if row.seconds_per_step is None or not row.num_steps:
            return None
        return row.steps_left * row.seconds_per_step
    done, total = pieces(row)
    if not done or row.started_at is None:
        return None
    taken = (datetime.now(UTC) - as_utc(row.started_at)).total_seconds()
    return taken / done * (total - done) if taken >= 0.0 else None  # the clock was set back


_KEY = "asked-of-run"


def remember(row: RunRow, words: str) -> None:
    """Keep what was asked of a run, such as "Resuming"."""
    st.session_state[_KEY] = row.run_id, row.status, words


def pending(row: RunRow) -> str | None:
    """Return what was asked of a run while the database still has its state from before, else None."""
    run_id, seen, words = st.session_state.get(_KEY, ("", "", ""))
    if run_id != row.run_id:
        return None
    try:
        status: str = read_state(RunDirectory.open(runs_root(), row.run_id)).status
    except (UserError, OSError):
        status = row.status
    if row.status == seen != status:
        return str(words)
    del st.session_state[_KEY]
    return None
