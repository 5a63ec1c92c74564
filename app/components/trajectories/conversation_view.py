"""A conversation turn by turn: what the model wrote, thought and called, and what came back. All of it is escaped."""

import json
from collections.abc import Iterator, Sequence
from html import escape
from itertools import accumulate, groupby

import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import figures, shown_text
from exgrpo.app.formats import counted, escape_control_characters, literal, nats, number
from exgrpo.db.rows.trajectories import MAX_CHARACTERS, TrajectoryRow
from exgrpo_core.recording.conversations import speaker, turns
from exgrpo_core.recording.rows import Message

MAX_MESSAGES, MAX_TOTAL_CHARACTERS = 400, 600_000
MANY_TURNS = 6
"""Of more turns only the first and the last are open."""
LONG_LINES, LONG_CHARACTERS = 14, 1_600
"""A longer message is folded."""
_SUMMARY_CHARACTERS = 110
_STRONGEST = 0.45


def show(row: TrajectoryRow, messages: Sequence[Message]) -> None:
    """Show counts and messages of a conversation."""
    st.caption(_counts(row))
    first = first_messages(messages)
    st.html(html(first))
    if len(messages) > len(first):
        st.caption(
            f"The first {len(first):,} of {len(messages):,} messages; {shown_text.command_for_all()} prints all."
        )


def first_messages(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages that a page shows: not so many, or so long, that it would be slow."""
    lengths = accumulate(min(len(message.text), MAX_CHARACTERS) for message in messages[:MAX_MESSAGES])
    return messages[: max(1, sum(length <= MAX_TOTAL_CHARACTERS for length in lengths))]


def html(messages: Sequence[Message]) -> str:
    """Return the messages as HTML in which all of their text is escaped."""
    numbers = turns(messages)
    last, most = max(numbers, default=0), max((message.mean_entropy or 0.0 for message in messages), default=0.0)
    parts = []
    for turn, group in groupby(zip(numbers, messages, strict=True), key=lambda pair: pair[0]):
        of_turn = [message for _, message in group]
        is_open = last <= MANY_TURNS or turn in {0, 1, last}
        parts.append(_turn(turn, of_turn, most, is_open=is_open) if turn else "".join(map(_message, of_turn)))
    return f'<div class="conversation">{"".join(parts)}</div>'


def _counts(row: TrajectoryRow) -> str:
    parts = [counted(row.num_turns or 0, "turn"), counted(row.num_tool_calls or 0, "tool call")]
    if row.num_tool_errors:
        parts[-1] += f", {row.num_tool_errors:,} failed"
    tokens = [f"{literal(role)} {count:,}" for role, count in (row.tokens_by_role or {}).items()]
    return " · ".join(parts + ([f"tokens: {', '.join(tokens)}"] if tokens else []))


def _turn(turn: int, messages: Sequence[Message], most: float, *, is_open: bool) -> str:
    facts = "".join(f"<span{style}>{escape(fact)}</span>" for fact, style in _turn_facts(messages, most))
    first = escape(escape_control_characters(_first_line(messages[0].text)))
    return (
        f'<details class="turn"{" open" if is_open else ""}><summary><b>Turn {turn}</b>{facts}'
        f"<i>{first}</i></summary>{''.join(map(_message, messages))}</details>"
    )


def _turn_facts(messages: Sequence[Message], most: float) -> Iterator[tuple[str, str]]:
    """Yield what is known of a turn, each with its style; the largest entropy has the strongest colour."""
    calls = [message.tool or "a tool" for message in messages if message.kind == "tool_call"]
    if calls:
        yield f"calls {escape_control_characters(', '.join(dict.fromkeys(calls)))}", ""
    if any(message.is_error for message in messages):
        yield "failed", ' class="failed"'
    generated = [message for message in messages if message.is_generated]
    tokens = [message.num_tokens for message in generated if message.num_tokens is not None]
    if tokens:
        yield counted(sum(tokens), "token"), ""
    entropies = [
        (message.mean_entropy, message.num_tokens or 1) for message in generated if message.mean_entropy is not None
    ]
    if entropies:
        value = sum(entropy * count for entropy, count in entropies) / sum(count for _, count in entropies)
        colour = figures.faded(theme.palette().fresh, _STRONGEST * min(1.0, value / most) if most else 0.0)
        yield f"entropy {nats(value)}", f' style="background:{colour}"'
    rewards = [message.reward for message in messages if message.reward is not None]
    if rewards:
        yield f"reward {number(sum(rewards))}", ""


def _message(message: Message) -> str:
    text = pretty_call(message.text) if message.kind == "tool_call" else message.text
    beginning = shown_text.beginning(text)
    # No <pre>: HTML drops the line end that it begins with.
    body = f'<div class="words">{escape(escape_control_characters(beginning))}</div>'
    if len(text) > len(beginning):
        body += f"<p>The beginning of {len(text):,} characters.</p>"
    head = f"<b>{escape(escape_control_characters(message_label(message)))}</b>"
    look = look_of(message)
    if message.kind == "thinking" or message.role == "system" or is_long(text):
        first = escape(escape_control_characters(_first_line(text)))
        return f'<details class="message {look}"><summary>{head}<i>{first}</i></summary>{body}</details>'
    return f'<div class="message {look}">{head}{body}</div>'


def look_of(message: Message) -> str:
    """Return the name of a message's look in the style sheet."""
    return "failed" if message.is_error else _LOOKS.get(message.kind, _LOOKS.get(message.role, "said"))


def message_label(message: Message) -> str:
    """Return who speaks, with the tool and whether it failed; what the model did not write itself is `given`."""
    label = "tool call" if message.kind == "tool_call" else speaker(message).partition(" ")[0]
    label += f" {message.tool}" if message.tool else ""
    label += ", given" if message.role == "assistant" and not message.is_generated else ""
    return label + (", failed" if message.is_error else ", image" if message.kind == "image" else "")


_LOOKS = {
    "thinking": "thought", "tool_call": "call", "tool_result": "result", "tool": "result", "assistant": "answer",
    "image": "said",
}  # fmt: skip


def is_long(text: str) -> bool:
    """Return whether a text is folded."""
    return len(text) > LONG_CHARACTERS or text.count("\n") > LONG_LINES


def pretty_call(text: str) -> str:
    """Return the arguments of a call one below the other; texts of several lines as such, not as JSON."""
    try:
        arguments = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(arguments, dict):
        return text
    lines = []
    for name, value in arguments.items():
        is_block = isinstance(value, str) and "\n" in value
        lines.append(f"{name}:\n{value}" if is_block else f"{name}: {json.dumps(value, ensure_ascii=False)}")
    return "\n".join(lines)


def _first_line(text: str) -> str:
    line = " ".join(text[: 4 * _SUMMARY_CHARACTERS].split())
    return line if len(line) <= _SUMMARY_CHARACTERS else f"{line[:_SUMMARY_CHARACTERS]}…"
