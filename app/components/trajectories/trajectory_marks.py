"""Marks on trajectories: those of the open one, a form that adds one, and all trajectories with a chosen mark."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import address, requests
from app.components.widgets import data_table, empty_state, exports, notice
from app.formats import escape_control_characters, literal
from app.queries.answers import ask
from db.queries import trajectories
from db.rows.display_names import shorten
from db.rows.runs import TrajectoryRow
from db.rows.trajectories import MarkedRow, MarkedTrajectory

REFRESH_SECONDS = 3
_ADDRESS = "marked"
_SAVED = "Saved"


def show_of(row: TrajectoryRow) -> None:
    """Show the marks of a trajectory, each removed by a click, and a form that adds one."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        _form(row)
        _show_marks(row)


def choose() -> str | None:
    """Show a choice of marks, where there are any, and return the chosen one, which is in the address."""
    counts = {count.mark: count for count in ask(trajectories.list_marks)}
    if not counts:
        return None
    wanted = st.query_params.get(_ADDRESS)
    chosen = wanted if wanted in counts else None
    st.session_state["mark-choice"] = chosen
    st.selectbox(
        "Marked trajectories", list(counts), index=None, placeholder="Marked trajectories",
        format_func=lambda name: f"{escape_control_characters(name)} ({counts[name].num_trajectories:,})",
        key="mark-choice", on_change=_choose, label_visibility="collapsed", width=240,
    )  # fmt: skip
    return chosen


def show_marked(mark: str) -> None:
    """Show the trajectories of all runs that have a mark, each row with a link to its trajectory."""
    rows = ask(trajectories.marked_trajectories, mark)
    with st.container(border=True, key="marked", gap="small"):
        st.markdown(f"**Marked: {literal(mark)}**")
        if not rows:
            empty_state.show("bookmark", "No trajectory has this mark", "Open a trajectory and mark it.")
            return
        exports.show(_files(rows), "marked-trajectories")
        picked = data_table.pick(_table(rows), f"marked-{mark}", "Trajectories that have the mark")
    if picked is not None:
        marked = rows[picked].marked
        query = {"run": marked.run_id, "trajectory": str(marked.trajectory_id)}
        st.switch_page("app_pages/trajectories.py", query_params=query)


def _form(row: TrajectoryRow) -> None:
    with (
        st.popover("Mark", icon=":material/bookmark_add:", key="mark-menu"),
        st.form("mark-form", border=False, enter_to_submit=False),
    ):
        name = st.text_input("Mark", key="mark-name", placeholder="e.g. odd reasoning", max_chars=60)
        comment = st.text_area("Comment", key="mark-comment", height=90)
        if not st.form_submit_button("Save", key="keep-mark"):
            return
        try:
            requests.mark_trajectory(MarkedTrajectory(row.run_id, row.attempt, row.trajectory_id, name, comment))
        except requests.CommandError as error:
            notice.show("error", "Not marked", str(error))
            return
    st.toast(_SAVED, icon=":material/check:")


@st.fragment(run_every=REFRESH_SECONDS)
def _show_marks(row: TrajectoryRow) -> None:
    with st.container(horizontal=True, gap="small"):
        for mark in ask(trajectories.marks_of, row.run_id, row.attempt, row.trajectory_id):
            if st.button(
                literal(mark.mark),
                icon=":material/bookmark:",
                key=f"unmark-{mark.mark}",
                help=f"{literal(mark.comment) or 'No comment'}. Click to remove the mark.",
            ):
                _remove(mark)


def _remove(mark: MarkedTrajectory) -> None:
    try:
        requests.mark_trajectory(mark, is_kept=False)
    except requests.CommandError as error:
        notice.show("error", "Not removed", str(error))
        return
    st.toast(_SAVED, icon=":material/check:")


def _table(rows: Sequence[MarkedRow]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Trajectory": [row.marked.trajectory_id for row in rows],
            "Run": [escape_control_characters(row.run_name) for row in rows],
            "Step": [row.step for row in rows],
            "Comment": [escape_control_characters(row.marked.comment) for row in rows],
            "Reward": [row.reward for row in rows],
            "Entropy": [round(row.mean_entropy, 4) for row in rows],
            "Tokens": [row.num_tokens or None for row in rows],
            "Prompt": [escape_control_characters(shorten(row.prompt_text)) for row in rows],
        }
    )


def _files(rows: Sequence[MarkedRow]) -> pd.DataFrame:
    """Return what a downloaded file holds: the table's values with whole texts."""
    texts: dict[str, list[str | int]] = {
        "Run id": [row.marked.run_id for row in rows],
        "Question": [row.question_index for row in rows],
        "Prompt": [row.prompt_text for row in rows],
        "Answer": [row.answer for row in rows],
        "Response": [row.text for row in rows],
    }
    return _table(rows).assign(**texts)


def _choose() -> None:
    address.put({_ADDRESS: st.session_state["mark-choice"]})
