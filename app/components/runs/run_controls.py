"""What users do with a run: stop, resume, clone, branch and score it; tags and notes."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import streamlit as st

from exgrpo.app.components.widgets import notice, run_state
from exgrpo.app.formats import ago, counted, escape_control_characters, exact, literal
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.runs import CheckpointRow, RunRow
from exgrpo.jobs.actions import run_actions
from exgrpo_core.errors import UserError
from exgrpo_core.recording.run_status import BROKEN, RunStatus

_STOPPABLE = frozenset({RunStatus.QUEUED, RunStatus.STARTING, RunStatus.RUNNING})

_REFUSAL = "run-control-refusal"


def show(row: RunRow) -> bool:
    """Show the buttons; do what is pressed, and return whether a copy is to be set up."""
    refusal = st.session_state.pop(_REFUSAL, None)
    if refusal is not None:
        notice.show("error", *refusal)
    asked = run_state.pending(row)
    is_cloneable = row.kind == "train" and row.has_settings and not row.is_recorded
    is_broken = is_cloneable and row.status == RunStatus.FAILED and asked is None
    if is_broken and st.button(
        "Clone and fix", icon=":material/build:", type="primary", key="run-fix",
        help="Set up a new run like this one, at the field that was wrong",
    ):  # fmt: skip
        return True
    if asked is not None:
        st.button(asked, icon=":material/pending:", key="run-asked", disabled=True)
    elif row.status in _STOPPABLE and not row.is_recorded:
        st.button(
            "Stop", icon=":material/stop_circle:", key="run-stop",
            help="Stop after the current step; Resume continues from there", on_click=_do, args=("stop", row),
        )  # fmt: skip
    elif row.status in BROKEN and not row.is_recorded:
        st.button(
            "Resume", icon=":material/play_arrow:", type="secondary" if is_broken else "primary", key="run-resume",
            help="Resume from the latest complete checkpoint", on_click=_do, args=("resume", row),
        )  # fmt: skip
    return (
        is_cloneable
        and not is_broken
        and st.button("Clone", icon=":material/content_copy:", key="run-clone", help="Set up a new run like this one")
    )


def _do(action: str, row: RunRow) -> None:
    """Stop or resume as a callback, which runs before the page, so that no refresh comes between click and action."""
    try:
        said = {"stop": run_actions.stop, "resume": run_actions.resume}[action](runs_root(), row.run_id)
    except UserError as error:
        st.session_state[_REFUSAL] = (f"Could not {action}", str(error))
        return
    if said:
        st.toast(said, icon=":material/play_arrow:", duration="long")
    run_state.remember(row, {"stop": "Stopping", "resume": "Resuming"}[action])


def show_next(row: RunRow, checkpoints: Sequence[CheckpointRow]) -> None:
    """Show the buttons that score the newest checkpoint and branch from it, each by its form; disabled without any."""
    newest = str(checkpoints[-1].step) if checkpoints else ""
    score = {"start": "true", "target": f"{row.run_id}@last"}
    branch = {"from": row.run_id, "step": newest, "section": "Optimizer"}
    for label, icon, meaning, page, query in (
        ("Score", "leaderboard", "Score its newest checkpoint on benchmarks", "benchmarks", score),
        ("Branch", "call_split", "Set up a run from a checkpoint of this one", "new_run", branch),
    ):
        if st.button(
            label, icon=f":material/{icon}:", key=f"run-{label.lower()}", disabled=not checkpoints,
            help=meaning if checkpoints else "There is no checkpoint yet",
        ):  # fmt: skip
            st.switch_page(f"app_pages/{page}.py", query_params=query)


def show_tags(rows: Sequence[RunRow], key: str) -> None:
    """Show a menu that adds a tag to the runs or removes one."""
    with st.popover(f"Tag {counted(len(rows), 'run')}", icon=":material/sell:", key=f"{key}-tags"):
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
                _mark([row], lambda run_id: run_actions.note(runs_root(), run_id, text))
        for at, text in reversed(notes):
            st.caption(ago(at), help=exact(at))
            st.text(escape_control_characters(text))


def _tags(rows: Sequence[RunRow], key: str) -> None:
    for tag in sorted({tag for row in rows for tag in row.tags}):
        tagged = [row for row in rows if tag in row.tags]
        if st.button(literal(tag), icon=":material/close:", key=f"{key}-untag-{tag}", help="Remove this tag"):
            _mark(tagged, partial(run_actions.tag, runs_root(), name=tag, is_set=False))
    with st.form(f"{key}-tag-form", clear_on_submit=True, border=False):
        name = st.text_input("New tag", max_chars=40, key=f"{key}-new-tag", placeholder="baseline")
        if st.form_submit_button("Add tag", icon=":material/add:") and name.strip():
            _mark(rows, lambda run_id: run_actions.tag(runs_root(), run_id, name))


def _mark(rows: Sequence[RunRow], action: Callable[[str], None]) -> None:
    with notice.refusals("Not saved"):
        for row in rows:
            action(row.run_id)
        st.toast("Saved", icon=":material/check:")
