"""The verdict on a chain of thought as a badge, and the choice of a set in which a case is kept."""

from collections.abc import Sequence

import streamlit as st

from exgrpo.app.components.widgets import notice
from exgrpo.app.components.widgets.run_state import Colour
from exgrpo.app.formats import literal
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.jobs.actions import annotations

_BADGES: dict[bool | None, tuple[str, str, Colour]] = {
    None: ("not judged", "help", "gray"), True: ("valid", "check", "blue"), False: ("not valid", "close", "orange"),
}  # fmt: skip


def verdict_badge(is_valid: bool | None) -> None:
    """Show a verdict on a chain of thought in the colours that correct and wrong have elsewhere."""
    name, icon, colour = _BADGES[is_valid]
    st.badge(name, icon=f":material/{icon}:", color=colour)


def show_keep(saved: SavedCase, sets: Sequence[str], key: str) -> None:
    """Show the field with the name of a set, the button that adds a case to it, and one to leave each of its sets."""
    name = st.text_input(
        "Set of cases", st.session_state.get("last-case-set", "snowball"), max_chars=60, key=f"set-{key}",
        help="Choose any name; a set may hold cases of several runs",
    )  # fmt: skip
    if st.button("Keep in this set", icon=":material/bookmark_add:", type="primary", key=f"mark-{key}"):
        st.session_state["last-case-set"] = name
        _mark(name, saved, is_kept=True)
    for kept in sets:
        if st.button(f"Remove from {literal(kept)}", icon=":material/bookmark_remove:", key=f"unmark-{key}-{kept}"):
            _mark(kept, saved, is_kept=False)


def _mark(name: str, saved: SavedCase, *, is_kept: bool) -> None:
    with notice.refusals("Not saved"):
        annotations.mark_case(runs_root(), name, saved, is_kept)
        st.toast("Saved", icon=":material/check:")
