"""The actions on ticked runs of the list: compare, rename, archive and delete them."""

from collections.abc import Sequence
from functools import partial

import streamlit as st

from app import requests
from app.components.runs import bin_view, runs_choice
from app.components.runs.comparison import MAX_RUNS
from db.rows.runs import RunRow


def show_compare(rows: Sequence[RunRow]) -> None:
    """Show the link for the ticked training runs; it waits for two to twenty."""
    run_ids = [row.run_id for row in rows if row.kind == "train"]
    # A link, since a page that is switched to from a part that refreshes by itself may lose a race with the refresh.
    st.page_link(
        "app_pages/compare.py",
        label=f"Compare {len(run_ids)} runs" if len(run_ids) > 1 else "Compare",
        icon=":material/compare_arrows:",
        disabled=not 2 <= len(run_ids) <= MAX_RUNS,
        query_params=runs_choice.parameters(run_ids),
        help=f"Tick two to {MAX_RUNS} training runs to see them side by side",
    )


def show_archive(rows: Sequence[RunRow]) -> None:
    """Show the button that archives or lists the ticked runs; it is disabled without any."""
    is_back = bool(rows) and all(row.is_archived for row in rows)
    calls = [
        (partial(requests.archive, row.run_id, not is_back), partial(requests.archive, row.run_id, is_back))
        for row in rows
    ]
    st.button(
        f"{'List' if is_back else 'Archive'} {_noun(rows)}{' again' if is_back else ''}" if rows else "Archive",
        icon=":material/unarchive:" if is_back else ":material/archive:",
        disabled=not rows,
        key="archive",
        help="Tick runs to hide them from this list; their files stay, and **Archived** shows them",
        on_click=bin_view.do,
        args=("Listed again" if is_back else "Archived", calls),
    )


def show_delete(rows: Sequence[RunRow]) -> None:
    """Show the button that moves the ticked runs into the bin."""
    calls = [(partial(requests.delete, row.run_id), partial(requests.restore, row.run_id)) for row in rows]
    st.button(
        f"Delete {_noun(rows)}" if rows else "Delete", icon=":material/delete:", disabled=not rows, key="delete",
        help="Tick runs that have ended to move them into the **Bin**, which keeps their files until it is emptied",
        on_click=bin_view.do, args=("Deleted", calls),
    )  # fmt: skip


def show_rename(rows: Sequence[RunRow]) -> None:
    """Show the menu that renames the ticked runs; several get the new name with a number each."""
    with st.popover("Rename", icon=":material/edit:", disabled=not rows, key="rename-menu"):
        name = st.text_input("New name", key="rename-name", max_chars=80, placeholder=rows[0].name if rows else "")
        names = [name.strip() if len(rows) == 1 else f"{name.strip()} {number}" for number in range(1, len(rows) + 1)]
        calls = [
            (partial(requests.rename, row.run_id, new), partial(requests.rename, row.run_id, row.name))
            for row, new in zip(rows, names, strict=True)
        ]
        st.button(
            f"Rename {_noun(rows)}", type="primary", key="rename", disabled=not name.strip(),
            on_click=bin_view.do, args=("Renamed", calls),
        )  # fmt: skip


def _noun(rows: Sequence[RunRow]) -> str:
    return "1 run" if len(rows) == 1 else f"{len(rows):,} runs"
