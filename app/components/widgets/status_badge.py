"""States and health as coloured badges; colour never carries the meaning alone."""

from collections.abc import Mapping
from typing import Literal

import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from db.rows.runs import RunRow

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
"""The colours in tables, by the names that badges use."""

STATES: dict[str, tuple[str, Colour, str]] = {
    "queued": ("queued", "gray", "schedule"),
    "starting": ("starting", "blue", "rocket_launch"),
    "running": ("running", "blue", "play_circle"),
    "stopping": ("stopping", "orange", "pending"),
    "stopped": ("stopped", "gray", "stop_circle"),
    "finished": ("finished", "green", "check_circle"),
    "failed": ("failed", "red", "error"),
    "lost": ("lost", "violet", "help"),
}
"""Displayed name, colour and icon of each state; tables and badges take them from here."""

HEALTH: dict[str, tuple[str, Colour, str]] = {
    "no_reward": ("no reward", "orange", "No rollout was correct for many steps, so there is nothing to learn from."),
    "empty_buffer": (
        "empty buffer",
        "orange",
        "The replay buffer holds no question, though questions are left to collect.",
    ),
    "entropy_collapse": ("entropy collapse", "orange", "Policy entropy fell close to zero: rollouts hardly differ."),
    "stalled": ("stalled", "red", "Nothing was recorded for much longer than a step takes."),
    "not_finite": ("not finite", "red", "A loss or gradient is not a finite number."),
    "damaged": ("damaged", "red", "Files of the run differ from what was written; its page says which."),
    "not_shown": ("not shown", "orange", "The program could not show all of the run; its page says why."),
    "all_retired": (
        "all retired",
        "violet",
        "Every training question is retired, so none is left to replay: the run has learned its data.",
    ),
}
"""Displayed name, colour and explanation of each health badge."""


def show(row: RunRow, asked: str | None = None) -> None:
    """Show a run's state, or what was just asked of it, and its health badges side by side."""
    name, colour, icon = STATES.get(row.status, ("unknown", "gray", "help"))
    if asked is not None:
        name, colour, icon = asked.lower(), "blue", "pending"
    with st.container(horizontal=True, gap="xsmall", vertical_alignment="center", width="content"):
        st.badge(name, icon=f":material/{icon}:", color=colour)
        for key in row.health:
            label, health_colour, explanation = HEALTH.get(key, ("see log", "orange", "The run reported a problem."))
            st.badge(label, icon=":material/monitor_heart:", color=health_colour, help=explanation)


def state_name(status: str) -> str:
    """Return the displayed name of a state."""
    return STATES.get(status, ("unknown", "gray", "help"))[0]


def health_names(health: tuple[str, ...]) -> list[str]:
    """Return the displayed names of health badges."""
    return [HEALTH.get(key, ("see log", "orange", ""))[0] for key in health]


def column(badges: Mapping[str, tuple[str, str, str]], width: int, explanation: str | None = None) -> ColumnConfig:
    """Return the column of a table whose cells are displayed names of `badges`, in their colours."""
    return st.column_config.MultiselectColumn(
        width=width, help=explanation, options=[name for name, _, _ in badges.values()],
        color=[_HEX[colour] for _, colour, _ in badges.values()],
    )  # fmt: skip
