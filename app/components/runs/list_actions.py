"""Actions on ticked runs of the list, which can be undone, and the bin of deleted runs."""

from collections.abc import Callable, Sequence
from functools import partial

import streamlit as st

from exgrpo.app.components.widgets import notice, run_choice
from exgrpo.app.components.widgets.run_choice import MAX_COMPARED
from exgrpo.app.formats import counted, escape_control_characters
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions import run_actions, run_bin
from exgrpo_core.errors import UserError

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
