"""What users do with a run, and with the ticked ones of the list, which can be undone; the bin of deleted runs."""

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import partial

import streamlit as st

from exgrpo.app.components.widgets import notice, run_choice, run_state
from exgrpo.app.components.widgets.run_choice import MAX_COMPARED
from exgrpo.app.formats import ago, counted, escape_control_characters, exact, literal
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.runs import CheckpointRow, RunRow
from exgrpo.jobs.actions import run_actions, run_bin
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


def show_tags(rows: Sequence[RunRow]) -> None:
    """Show a menu that adds a tag to the runs or removes one."""
    with st.popover(f"Tag {counted(len(rows), 'run')}", icon=":material/sell:", key="runs-tags"):
        _tags(rows, "runs")


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


_LAST = "last-bulk-action"
_REFUSED = "bulk-refusals"


Call = Callable[[], object]


def _call(action: Callable[..., object], *arguments: object) -> Call:
    return partial(action, runs_root(), *arguments)


def do(words: str, actions: Sequence[tuple[Call, Call]]) -> None:
    """Carry out actions, each given with its opposite, and keep what was done in words; refused ones are named."""
    undo, refused = [], []
    for action, opposite in actions:
        try:
            action()
        except UserError as error:
            refused.append(str(error))
        else:
            undo.append(opposite)
    st.session_state[_REFUSED] = refused
    if undo:
        st.session_state[_LAST] = f"{words} {counted(len(undo), 'run')}.", undo


def show_last() -> None:
    """Show what was just done with a button that undoes it, and what was refused."""
    refused = st.session_state.pop(_REFUSED, None)
    if refused:
        notice.show("error", "Not done", "\n".join(refused))
    last = st.session_state.get(_LAST)
    if last is not None:
        words, undo = last
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="bulk-undo"):
            st.markdown(f":material/check: {words}", width="content")
            st.button("Undo", icon=":material/undo:", key="undo", type="tertiary", on_click=_undo, args=(undo,))
            st.button("", icon=":material/close:", key="undo-close", type="tertiary", on_click=_forget, help="Close")


def show_bin() -> None:
    """Show the deleted runs, each with a button that restores it, and the one that removes all for good."""
    deleted = run_bin.list_deleted(runs_root())
    if not deleted:
        notice.show_empty("delete", "The bin is empty", "Deleted runs are kept here until the bin is emptied.")
        return
    with st.popover("Empty bin", icon=":material/delete_forever:", key="empty-bin"):
        st.markdown(f"This removes {counted(len(deleted), 'run')} with all their files. It cannot be undone.")
        st.button(
            "Remove for good", type="primary", key="empty-bin-now", on_click=_undo, args=([_call(run_bin.empty)],)
        )
    for run_id, name in deleted.items():
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(escape_control_characters(f"{name}  ·  {run_id}"), width="stretch")
            st.button(
                "Restore", icon=":material/restore_from_trash:", key=f"restore-{run_id}", type="tertiary",
                on_click=do,
                args=("Restored", [(_call(run_bin.restore, run_id), _call(run_bin.delete, run_id))]),
            )  # fmt: skip


def _undo(calls: Sequence[Call]) -> None:
    do("", [(call, call) for call in calls])
    _forget()


def _forget() -> None:
    st.session_state.pop(_LAST, None)


def show_compare(rows: Sequence[RunRow]) -> None:
    """Show the link for the ticked training runs; it waits for two to twenty."""
    run_ids = [row.run_id for row in rows if row.kind == "train"]
    # A link, since a page that is switched to from a part that refreshes by itself may lose a race with the refresh.
    st.page_link(
        "app_pages/compare.py", label=f"Compare {len(run_ids)} runs" if len(run_ids) > 1 else "Compare",
        icon=":material/compare_arrows:", disabled=not 2 <= len(run_ids) <= MAX_COMPARED,
        query_params=run_choice.compared_parameters(run_ids),
        help=f"Tick two to {MAX_COMPARED} training runs to see them side by side",
    )  # fmt: skip


def show_archive(rows: Sequence[RunRow]) -> None:
    """Show the button that archives or lists the ticked runs."""
    is_back = all(row.is_archived for row in rows)
    archive = run_actions.archive
    calls = [(_call(archive, row.run_id, not is_back), _call(archive, row.run_id, is_back)) for row in rows]
    st.button(
        f"{'List' if is_back else 'Archive'} {counted(len(rows), 'run')}{' again' if is_back else ''}",
        icon=":material/unarchive:" if is_back else ":material/archive:", key="archive",
        help="Hide them from this list; their files stay, and **Archived** shows them", on_click=do,
        args=("Listed again" if is_back else "Archived", calls),
    )  # fmt: skip


def show_delete(rows: Sequence[RunRow]) -> None:
    """Show the button that moves the ticked runs into the bin."""
    calls = [(_call(run_bin.delete, row.run_id), _call(run_bin.restore, row.run_id)) for row in rows]
    st.button(
        f"Delete {counted(len(rows), 'run')}", icon=":material/delete:", key="delete",
        help="Move runs that have ended into the **Bin**, which keeps their files until it is emptied",
        on_click=do, args=("Deleted", calls),
    )  # fmt: skip


def show_rename(rows: Sequence[RunRow]) -> None:
    """Show the menu that renames the ticked runs; several get the new name with a number each."""
    with st.popover("Rename", icon=":material/edit:", key="rename-menu"):
        name = st.text_input("New name", key="rename-name", max_chars=80, placeholder=rows[0].name)
        st.button(
            f"Rename {counted(len(rows), 'run')}", type="primary", key="rename", disabled=not name.strip(),
            on_click=_rename, args=(rows,),
        )  # fmt: skip


def _rename(rows: Sequence[RunRow]) -> None:
    # An argument of the button would lack what was typed right before the click.
    name = st.session_state["rename-name"].strip()
    names = [name if len(rows) == 1 else f"{name} {number}" for number in range(1, len(rows) + 1)]
    calls = [
        (_call(run_actions.rename, row.run_id, new), _call(run_actions.rename, row.run_id, row.name))
        for row, new in zip(rows, names, strict=True)
    ]
    do("Renamed", calls)
