"""The buttons that the state of a run allows."""

from collections.abc import Sequence

import streamlit as st

from app import requests
from app.components.runs import asked_action
from app.components.widgets import notice
from db.rows.runs import CheckpointRow, RunRow

_STOPPABLE = frozenset({"queued", "starting", "running"})

_REFUSAL = "run-control-refusal"


def show(row: RunRow) -> str | None:
    """Show the buttons; do what is pressed, and return `clone` when a copy is to be set up."""
    refusal = st.session_state.pop(_REFUSAL, None)
    if refusal is not None:
        notice.show("error", *refusal)
    asked = asked_action.pending(row)
    if asked is not None:
        st.button(asked, icon=":material/pending:", key="run-asked", disabled=True)
    elif row.status in _STOPPABLE:
        st.button(
            "Stop", icon=":material/stop_circle:", key="run-stop",
            help="Stop after the current step; Resume continues from there", on_click=_do, args=("stop", row),
        )  # fmt: skip
    elif row.status in requests.RESUMABLE:
        st.button(
            "Resume", icon=":material/play_arrow:", type="primary", key="run-resume",
            help="Resume from the latest complete checkpoint", on_click=_do, args=("resume", row),
        )  # fmt: skip
    is_cloneable = row.kind == "train" and row.has_settings and not row.is_adopted
    if is_cloneable and st.button(
        "Clone", icon=":material/content_copy:", key="run-clone", help="Set up a new run like this one"
    ):
        return "clone"
    return None


def show_score(row: RunRow, checkpoints: Sequence[CheckpointRow]) -> None:
    """Show the button that leads to the form which scores the newest checkpoint; it is disabled without any."""
    if st.button(
        "Score",
        icon=":material/leaderboard:",
        key="run-score",
        disabled=not checkpoints,
        help="Score its newest checkpoint on benchmarks" if checkpoints else "There is no checkpoint yet",
    ):
        target = {"start": "true", "target": f"{row.run_id}@last"}
        st.switch_page("app_pages/benchmarks.py", query_params=target)


def _do(action: str, row: RunRow) -> None:
    """Stop or resume as a callback, which runs before the page, so that no refresh comes between click and action."""
    try:
        said = {"stop": requests.stop, "resume": requests.resume}[action](row.run_id)
    except requests.CommandError as error:
        st.session_state[_REFUSAL] = (f"Could not {action}", str(error))
        return
    if said:
        st.toast(said, icon=":material/play_arrow:", duration="long")
    asked_action.remember(row, {"stop": "Stopping", "resume": "Resuming"}[action])
