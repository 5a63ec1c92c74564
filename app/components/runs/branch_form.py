"""Starts a new run from a checkpoint of this one."""

from collections.abc import Sequence

import streamlit as st

from app import requests
from app.components.widgets import notice
from db.rows.runs import CheckpointRow, RunRow


def show(row: RunRow, checkpoints: Sequence[CheckpointRow]) -> str | None:
    """Show what a branch needs behind one button; return the id of the new run when it is queued."""
    with st.popover(
        "Branch",
        wrap=False,
        icon=":material/call_split:",
        disabled=not checkpoints,
        key=f"branch-{row.run_id}",
        help="Start a new run from a checkpoint of this one" if checkpoints else "There is no checkpoint yet",
    ):
        if not checkpoints:
            return None
        steps = [checkpoint.step for checkpoint in reversed(checkpoints)]
        step = st.selectbox("Checkpoint at step", steps, format_func="{:,}".format, key=f"branch-step-{row.run_id}")
        last_step = st.number_input(
            "Train until step",
            min_value=step + 1,
            value=row.num_steps if row.num_steps > step else step + row.num_steps,
            step=1,
            key=f"branch-until-{row.run_id}-{step}",
            help="The number of steps of the new run, those up to the checkpoint counted",
        )
        st.caption("A new run with the weights, buffer and draws of that step; both share their files until then.")
        if st.button("Start branch", icon=":material/call_split:", type="primary", key="branch-start", width="stretch"):
            return _branch(row.run_id, step, int(last_step))
    return None


def _branch(run_id: str, step: int, num_steps: int) -> str | None:
    try:
        return requests.branch(run_id, step, num_steps)
    except requests.UserError as error:
        notice.show("error", "Could not branch", str(error))
        return None
