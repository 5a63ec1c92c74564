"""What else answers a question: the group of a trajectory, another one word by word, every attempt over steps."""

import re
from collections.abc import Iterator, Sequence
from difflib import SequenceMatcher
from html import escape
from itertools import zip_longest

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import address, theme
from exgrpo.app.components.trajectories import conversation_view
from exgrpo.app.components.trajectories.conversation_view import look_of, message_label
from exgrpo.app.components.widgets import address_choice, data_table, figures, notice, shown_text
from exgrpo.app.components.widgets.shown_text import Part
from exgrpo.app.formats import counted, escape_control_characters, nats, number
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import lineage, trajectories
from exgrpo.db.rows.display_names import distinct_names, model_name
from exgrpo.db.rows.trajectories import MAX_MEMBERS, AttemptedRow, GroupMemberRow, LineageRow, TrajectoryRow
from exgrpo.db.statistics import interval_text, wilson
from exgrpo_core.recording.rows import Message

NUM_COLUMNS = 2
MAX_COMPARED_CHARACTERS = 12_000
MAX_EXACT_PIECES = 400
_PIECES = re.compile(r"\w+|\s+|[^\w\s]", re.UNICODE)


def show(row: TrajectoryRow, _history: Sequence[LineageRow]) -> None:
    """Show the share of correct rollouts of its question by step, one line per run, and every attempt as a table."""
    rows = sorted(ask(lineage.attempts_at_question, row.question_id), key=lambda attempt: attempt.run_id != row.run_id)
    if not rows:
        notice.show_empty("history", "No attempts", "No answer to this question is known to be correct or wrong.")
        return
    names = distinct_names({attempt.run_id: attempt.run_name for attempt in rows}.items())
    figures.show_card(
        "Correct rollouts of this question", f"share of fresh rollouts, in {counted(len(names), 'run')} that tried it",
        chart(rows, names, row.run_id), "question-course",
        "Share of correct fresh rollouts of one question over steps, one line per run",
    )  # fmt: skip
    columns = {"Interval": st.column_config.TextColumn(help="Wilson's, of the share of correct rollouts, 95%")}
    data_table.show(table(rows, names), "attempts-at-question", "Every step that tried the question", columns)


def chart(rows: Sequence[AttemptedRow], names: dict[str, str], run_id: str) -> go.Figure:
    """Return one line per run, this run first and thickest; diamonds are steps with a replayed trajectory."""
    figure = figures.new_figure(y={"tickformat": ".0%", "range": [-0.03, 1.03]}, showlegend=True)
    ordered = sorted(names, key=lambda run_key: (run_key != run_id, run_key))
    for index, run_key in enumerate(ordered):
        points = [row for row in rows if row.run_id == run_key]
        look = theme.look_of_run(index)
        figure.add_trace(
            go.Scatter(
                x=np.array([row.step for row in points], dtype=np.int32),
                y=np.array([row.num_correct / row.num_rollouts for row in points], dtype=np.float32),
                name=escape_control_characters(names[run_key]).replace("<", "&lt;"), mode="lines+markers",
                line={"color": look.colour, "dash": look.dash, "width": 2 if run_key == run_id else 1.2},
                marker={
                    "color": look.colour, "size": 8,
                    "symbol": ["diamond" if row.is_replayed else "circle" for row in points],
                },
                hovertemplate="%{y:.0%}",
            )
        )  # fmt: skip
    return figure


def table(rows: Sequence[AttemptedRow], names: dict[str, str]) -> pd.DataFrame:
    """Return one row per attempt, whose rollouts are a sample of what the policy does, with the known columns."""
    rates = [wilson(row.num_correct, row.num_rollouts) for row in rows]
    return pd.DataFrame(
        {
            "Run": [escape_control_characters(names[row.run_id]) for row in rows],
            "Model": [escape_control_characters(model_name(row.model)) or None for row in rows],
            "Step": [row.step for row in rows],
            "Correct": [f"{row.num_correct} of {row.num_rollouts}" for row in rows],
            "Interval": [f"{interval_text((rate.low, rate.high), 0)}%" for rate in rates],
            "Mean entropy": [round(row.mean_entropy, 4) for row in rows],
            "Entropy ± 95%": [round(row.entropy_half_interval, 4) for row in rows],
            "Mean tokens": [round(row.mean_tokens, 1) or None for row in rows],
            "Tokens ± 95%": [round(row.tokens_half_interval, 1) for row in rows],
            "With replay": ["yes" if row.is_replayed else "no" for row in rows],
        }
    ).dropna(axis="columns", how="all")


def show_group(row: TrajectoryRow, _history: Sequence[LineageRow]) -> None:
    """Show the figures and texts of its group; what is not in its own text is underlined."""
    members = ask(lineage.group_members, row.run_id, row.step, row.question_index, row.group_position)
    if not members:
        notice.show_empty("groups", "No group", "The group of this trajectory is not in the database.")
        return
    reference = next((member for member in members if member.trajectory_id == row.trajectory_id), members[0])
    outcomes = [member.is_correct for member in members if member.is_correct is not None]
    which = "the first " if len(members) >= MAX_MEMBERS else ""
    known = f"{sum(outcomes)} of {which}{len(outcomes)} correct. " if outcomes else ""
    st.caption(f"{known}Underlined: not in the open one, {reference.trajectory_id}.")
    ordered = sorted(members, key=lambda member: member.trajectory_id != reference.trajectory_id)
    columns = st.columns(NUM_COLUMNS, gap="small")
    for index, member in enumerate(ordered):
        with columns[index % NUM_COLUMNS]:
            _member(member, reference)


def compare(text: str, reference: str) -> list[Part]:
    """Return the text in parts; those that are not in the reference at this position are underlined."""
    if max(len(text), len(reference)) > MAX_COMPARED_CHARACTERS:
        return [Part(text)]
    pieces, other = _PIECES.findall(text), _PIECES.findall(reference)
    colour = theme.palette().empty_cell
    parts = []
    # A response that repeats itself would take minutes: of long ones, frequent pieces begin no match.
    is_long = len(pieces) * len(other) > MAX_EXACT_PIECES**2
    for kind, _, _, start, end in SequenceMatcher(None, other, pieces, autojunk=is_long).get_opcodes():
        piece = "".join(pieces[start:end])
        if piece:
            parts.append(Part(piece) if kind == "equal" else Part(piece, colour, is_underlined=True))
    return parts


def _member(member: GroupMemberRow, reference: GroupMemberRow) -> None:
    is_reference = member.trajectory_id == reference.trajectory_id
    with st.container(border=True, gap="xsmall", key=f"member-{member.trajectory_id}-{member.is_replayed}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**{member.trajectory_id}**", width="content")
            if member.is_correct is not None:
                st.badge(
                    "correct" if member.is_correct else "not correct",
                    icon=f":material/{'check' if member.is_correct else 'close'}:",
                    color="blue" if member.is_correct else "orange",
                )
            if member.is_replayed:
                st.badge(f"replayed, generated in step {member.rollout_step}", icon=":material/replay:", color="green")
            if is_reference:
                st.badge("open", icon=":material/visibility:", color="gray")
            else:
                st.button(
                    "Open", key=f"open-{member.trajectory_id}", type="tertiary", on_click=address.put,
                    args=({"trajectory": str(member.trajectory_id)},), help="Open this trajectory instead of the other",
                )  # fmt: skip
        if member.num_tokens:
            st.caption(
                f"{member.num_tokens:,} tokens · entropy {nats(member.mean_entropy)} nats · advantage "
                f"{number(member.advantage)}"
            )
        if member.text is None or member.num_characters is None:
            st.markdown(":gray[Its text is in the run that generated it.]")
        else:
            shown_text.show_marked(
                [Part(member.text)] if is_reference else compare(member.text, reference.text or member.text)
            )
            shown_text.show_bound(member.num_characters)


_ADDRESS = "beside"
_Pair = tuple[Message | None, Message | None]


def show_difference(row: TrajectoryRow, _history: Sequence[LineageRow]) -> None:
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
