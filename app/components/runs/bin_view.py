"""The bin of deleted runs, and the line that undoes what was just done to ticked runs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import streamlit as st

from app import requests
from app.components.widgets import empty_state, notice
from app.formats import escape_control_characters

_LAST = "last-bulk-action"
_REFUSED = "bulk-refusals"


@dataclass(frozen=True, slots=True)
class Done:
    """What was done in words, and the calls that take it back; none where nothing can."""

    words: str
    undo: tuple[Callable[[], object], ...]


def do(words: str, actions: Sequence[tuple[Callable[[], object], Callable[[], object]]]) -> None:
    """Carry out actions, each given with its opposite, and keep what was done; refused ones are named."""
    undo, refused = [], []
    for action, opposite in actions:
        try:
            action()
        except requests.UserError as error:
            refused.append(str(error))
        else:
            undo.append(opposite)
    st.session_state[_REFUSED] = refused
    if undo:
        noun = "1 run" if len(undo) == 1 else f"{len(undo):,} runs"
        st.session_state[_LAST] = Done(f"{words} {noun}.", tuple(undo))


def show_last() -> None:
    """Show what was just done with a button that undoes it, and what was refused."""
    refused = st.session_state.pop(_REFUSED, None)
    if refused:
        notice.show("error", "Not done", "\n".join(refused))
    last: Done | None = st.session_state.get(_LAST)
    if last is not None:
        with st.container(horizontal=True, vertical_alignment="center", gap="small", key="bulk-undo"):
            st.markdown(f":material/check: {last.words}", width="content")
            st.button("Undo", icon=":material/undo:", key="undo", type="tertiary", on_click=_undo, args=(last,))
            st.button("", icon=":material/close:", key="undo-close", type="tertiary", on_click=_forget, help="Close")


def show() -> None:
    """Show the deleted runs, each with a button that restores it, and the one that removes all for good."""
    deleted = requests.list_deleted()
    if not deleted:
        empty_state.show("delete", "The bin is empty", "Deleted runs are kept here until the bin is emptied.")
        return
    with st.popover("Empty bin", icon=":material/delete_forever:", key="empty-bin"):
        st.markdown(f"This removes {len(deleted):,} runs with all their files. It cannot be undone.")
        st.button("Remove for good", type="primary", key="empty-bin-now", on_click=_empty)
    for run_id, name in deleted.items():
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(escape_control_characters(f"{name}  ·  {run_id}"), width="stretch")
            st.button(
                "Restore", icon=":material/restore_from_trash:", key=f"restore-{run_id}", type="tertiary",
                on_click=do,
                args=("Restored", [(partial(requests.restore, run_id), partial(requests.delete, run_id))]),
            )  # fmt: skip


def _undo(last: Done) -> None:
    _forget()
    refused = []
    for opposite in last.undo:
        try:
            opposite()
        except requests.UserError as error:
            refused.append(str(error))
    st.session_state[_REFUSED] = refused


def _forget() -> None:
    st.session_state.pop(_LAST, None)


def _empty() -> None:
    _forget()
    try:
        requests.empty_bin()
    except requests.UserError as error:
        st.session_state[_REFUSED] = [str(error)]
