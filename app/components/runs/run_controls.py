"""What users do with a run: stop, resume, clone, branch and score it; tags and notes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import streamlit as st

from app import requests
from app.components.widgets import notice, run_state
from app.formats import ago, escape_control_characters, exact, literal
from db.rows.runs import CheckpointRow, RunRow

_STOPPABLE = frozenset({"queued", "starting", "running"})

_REFUSAL = "run-control-refusal"


def show(row: RunRow) -> str | None:
    """Show the buttons; do what is pressed, and return `clone` when a copy is to be set up."""
    refusal = st.session_state.pop(_REFUSAL, None)
    if refusal is not None:
        notice.show("error", *refusal)
    asked = run_state.pending(row)
    if asked is not None:
        st.button(asked, icon=":material/pending:", key="run-asked", disabled=True)
    elif row.status in _STOPPABLE and not row.is_recorded:
        st.button(
            "Stop", icon=":material/stop_circle:", key="run-stop",
            help="Stop after the current step; Resume continues from there", on_click=_do, args=("stop", row),
        )  # fmt: skip
    elif row.status in requests.RESUMABLE and not row.is_recorded:
        st.button(
            "Resume", icon=":material/play_arrow:", type="primary", key="run-resume",
            help="Resume from the latest complete checkpoint", on_click=_do, args=("resume", row),
        )  # fmt: skip
    is_cloneable = row.kind == "train" and row.has_settings and not row.is_recorded
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
    run_state.remember(row, {"stop": "Stopping", "resume": "Resuming"}[action])


def show_branch(row: RunRow, checkpoints: Sequence[CheckpointRow], gpus_per_node: int | None) -> str | None:
    """Show what a branch needs behind one button; return the id of the new run when it is queued.

    `gpus_per_node` are those of the run, None where it cannot continue on another number.
    """
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
            "Train until step", min_value=step + 1,
            value=row.num_steps if row.num_steps > step else step + row.num_steps, step=1,
            key=f"branch-until-{row.run_id}-{step}",
            help="The number of steps of the new run, those up to the checkpoint counted",
        )  # fmt: skip
        if gpus_per_node is not None:
            key = f"branch-gpus-{row.run_id}"
            gpus_per_node = st.number_input("GPUs of each machine", min_value=1, value=gpus_per_node, key=key)
        st.caption("A new run with the weights, buffer and draws of that step; both share their files until then.")
        if st.button("Start branch", icon=":material/call_split:", type="primary", key="branch-start", width="stretch"):
            with notice.refusals("Could not branch"):
                return requests.branch(row.run_id, step, int(last_step), gpus_per_node)
    return None


def show_tags(rows: Sequence[RunRow], key: str) -> None:
    """Show a menu that adds a tag to the runs or removes one; it is disabled without runs."""
    with st.popover(
        "Tags" if len(rows) < 2 else f"Tag {len(rows):,} runs",
        icon=":material/sell:",
        disabled=not rows,
        key=f"{key}-tags",
        help=None if rows else "Tick runs to tag them",
    ):
        _tags(rows, key)


def show_notes(row: RunRow, notes: Sequence[tuple[datetime, str]]) -> None:
    """Show a menu with a run's tags and its notes, newest first, as plain text."""
    with st.popover(
        f"Notes ({len(notes)})" if notes else "Notes", icon=":material/edit_note:", wrap=False, key="run-notes"
    ):
        _tags([row], "run")
        with st.form("note-form", clear_on_submit=True, border=False):
            text = st.text_area("New note", key="new-note", height=90, max_chars=20_000)
            if st.form_submit_button("Add note", icon=":material/add:") and text.strip():
                _mark([row], lambda run_id: requests.note(run_id, text))
        for at, text in reversed(notes):
            st.caption(ago(at), help=exact(at))
            st.text(escape_control_characters(text))


def _tags(rows: Sequence[RunRow], key: str) -> None:
    for tag in sorted({tag for row in rows for tag in row.tags}):
        tagged = [row for row in rows if tag in row.tags]
        if st.button(literal(tag), icon=":material/close:", key=f"{key}-untag-{tag}", help="Remove this tag"):
            _mark(tagged, partial(requests.tag, name=tag, is_set=False))
    with st.form(f"{key}-tag-form", clear_on_submit=True, border=False):
        name = st.text_input("New tag", max_chars=40, key=f"{key}-new-tag", placeholder="baseline")
        if st.form_submit_button("Add tag", icon=":material/add:") and name.strip():
            _mark(rows, lambda run_id: requests.tag(run_id, name))


def _mark(rows: Sequence[RunRow], action: Callable[[str], None]) -> None:
    with notice.refusals("Not saved"):
        for row in rows:
            action(row.run_id)
        st.toast("Saved", icon=":material/check:")
