"""Two trajectories side by side: equal messages folded, in the others the words that differ."""

from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import zip_longest

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.trajectories import conversation_view
from exgrpo.app.components.trajectories.conversation_view import look_of, message_label
from exgrpo.app.components.trajectories.question_view import MAX_COMPARED_CHARACTERS, compare
from exgrpo.app.components.widgets import address_choice, notice, shown_text
from exgrpo.app.components.widgets.shown_text import Part
from exgrpo.app.formats import counted, escape_control_characters
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import lineage, trajectories
from exgrpo.db.rows.trajectories import LineageRow, TrajectoryRow
from exgrpo_core.recording.rows import Message

_ADDRESS = "beside"
_Pair = tuple[Message | None, Message | None]


def show(row: TrajectoryRow, _history: Sequence[LineageRow]) -> None:
    """Show the open trajectory next to another of the run, by default the next of its group."""
    members = ask(lineage.group_members, row.run_id, row.step, row.question_index, row.group_position)
    others = [member.trajectory_id for member in members if member.trajectory_id != row.trajectory_id]
    number = address.whole_number(_ADDRESS)
    if number is None:
        number = next((other for other in others if other > row.trajectory_id), next(iter(others), None))
    st.number_input(
        "Compare with trajectory", 0, value=None, step=1, width=200,
        help=f"Of its group: {', '.join(map(str, others[:12])) or 'none'}",
        **address_choice.bound(_ADDRESS, number, _ADDRESS),
    )  # fmt: skip
    if number is None:
        return
    messages, other = (ask(trajectories.messages_of, row.run_id, wanted) for wanted in (row.trajectory_id, number))
    if not other:
        notice.show_no_such_trajectory()
        return
    first, second = conversation_view.first_messages(messages), conversation_view.first_messages(other)
    st.html(html(first, second, (f"Trajectory {row.trajectory_id}, open", f"Trajectory {number}")))


def html(messages: Sequence[Message], other: Sequence[Message], titles: tuple[str, str]) -> str:
    """Return two columns of messages as HTML in which all of their text is escaped; what differs is underlined."""
    head = "".join(f"<b>{escape(title)}</b>" for title in titles)
    return f'<div class="conversation beside"><div class="pair">{head}</div>{"".join(_rows(messages, other))}</div>'


def _rows(messages: Sequence[Message], other: Sequence[Message]) -> Iterator[str]:
    keys, other_keys = ([(item.role, item.kind, item.tool, item.text) for item in of] for of in (messages, other))
    effort = MAX_COMPARED_CHARACTERS**2
    matcher = SequenceMatcher(None, keys, other_keys, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind == "equal":
            cells = "".join(_cell(message, None) for message in messages[start:end])
            yield f"<details><summary>{counted(end - start, 'equal message')}</summary>{cells}</details>"
            continue
        for left, right in aligned(messages[start:end], other[other_start:other_end]):
            effort -= len(left.text) * len(right.text) if left and right else 0
            is_compared = effort >= 0  # of many long messages the first ones only, or a page takes minutes
            pair = _cell(left, right if is_compared else None) + _cell(right, left if is_compared else None)
            yield f'<div class="pair">{pair}</div>'


def aligned(messages: Sequence[Message], other: Sequence[Message]) -> Iterator[_Pair]:
    """Yield the messages in pairs of one speaker, None where the other side has none of this speaker here."""
    speakers, others = ([(item.role, item.kind) for item in of] for of in (messages, other))
    for _, start, end, other_start, other_end in SequenceMatcher(None, speakers, others, autojunk=False).get_opcodes():
        yield from zip_longest(messages[start:end], other[other_start:other_end])


def _cell(message: Message | None, beside: Message | None) -> str:
    if message is None:
        return "<div></div>"
    text = shown_text.beginning(message.text)
    parts = [Part(text)] if beside is None else compare(text, beside.text)
    label = escape(escape_control_characters(message_label(message)))
    words = f'<div class="words">{shown_text.html(parts)}</div>'
    return f'<div class="message {look_of(message)}"><b>{label}</b>{words}</div>'
