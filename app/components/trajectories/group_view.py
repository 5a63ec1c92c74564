"""The K trajectories of a question in one step side by side, with what differs marked."""

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

import streamlit as st

from app import address, theme
from app.components.widgets import empty_state, shown_text
from app.components.widgets.shown_text import Part
from app.formats import nats, number, token_count
from db.rows.trajectories import MAX_MEMBERS, GroupMemberRow

NUM_COLUMNS = 2
MAX_COMPARED_CHARACTERS = 12_000
_PIECES = re.compile(r"\w+|\s+|[^\w\s]", re.UNICODE)


def show(members: Sequence[GroupMemberRow], reference_id: int) -> None:
    """Show every member's figures and text; text that is not in the reference is underlined."""
    if not members:
        empty_state.show("groups", "No group", "The group of this trajectory is not in the database.")
        return
    reference = next((member for member in members if member.trajectory_id == reference_id), members[0])
    num_correct = sum(member.reward >= 1.0 for member in members)
    which = "the first " if len(members) >= MAX_MEMBERS else ""
    st.caption(
        f"{num_correct} of {which}{len(members)} correct. Underlined: not in the open one, {reference.trajectory_id}."
    )
    ordered = sorted(members, key=lambda member: member.trajectory_id != reference.trajectory_id)
    columns = st.columns(NUM_COLUMNS, gap="small")
    for index, member in enumerate(ordered):
        with columns[index % NUM_COLUMNS]:
            _card(member, reference)


def compare(text: str, reference: str) -> list[Part]:
    """Return the text in parts; those that are not in the reference at this position are underlined."""
    if max(len(text), len(reference)) > MAX_COMPARED_CHARACTERS:
        return [Part(text)]
    pieces, other = _PIECES.findall(text), _PIECES.findall(reference)
    colour = theme.palette().empty_cell
    parts = []
    for kind, _, _, start, end in SequenceMatcher(None, other, pieces, autojunk=False).get_opcodes():
        piece = "".join(pieces[start:end])
        if piece:
            parts.append(Part(piece) if kind == "equal" else Part(piece, colour, is_underlined=True))
    return parts


def _card(member: GroupMemberRow, reference: GroupMemberRow) -> None:
    is_reference = member.trajectory_id == reference.trajectory_id
    with st.container(border=True, gap="xsmall", key=f"member-{member.trajectory_id}-{member.is_replayed}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{member.trajectory_id}**", width="content")
            is_correct = member.reward >= 1.0
            st.badge(
                "correct" if is_correct else "not correct",
                icon=f":material/{'check' if is_correct else 'close'}:",
                color="blue" if is_correct else "orange",
            )
            if member.is_replayed:
                st.badge(f"replayed, generated in step {member.born_step}", icon=":material/replay:", color="green")
            if is_reference:
                st.badge("open", icon=":material/visibility:", color="gray")
            else:
                st.button(
                    "Open",
                    key=f"open-{member.trajectory_id}",
                    type="tertiary",
                    on_click=_open,
                    args=(member.trajectory_id,),
                    help="Open this trajectory instead of the other",
                )
        st.caption(
            f"{token_count(member.num_tokens)} tokens · entropy {nats(member.mean_entropy)} nats · advantage "
            f"{number(member.advantage)}"
        )
        if member.text is None or member.num_characters is None:
            st.markdown(":gray[Its text is in the run that generated it.]")
        else:
            shown_text.show_marked(
                [Part(member.text)] if is_reference else compare(member.text, reference.text or member.text)
            )
            shown_text.show_bound(member.num_characters)


def _open(trajectory_id: int) -> None:
    address.put({"trajectory": str(trajectory_id)})
