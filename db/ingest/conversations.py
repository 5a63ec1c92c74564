"""From the messages of a trajectory to what its rows hold: counts, the messages themselves, words by role."""

from collections.abc import Mapping, Sequence
from typing import Any

from exgrpo.db.rows.role_words import CONVERSATION, TOOL, labelled, words_of
from exgrpo.db.tables.column_types import storable_text
from exgrpo_core.recording.conversations import as_document, from_document, is_plain, speaker, tokens_by_role, turns
from exgrpo_core.recording.rows import Message

MAX_ROLE_CHARACTERS = 100_000
"""Words by role beyond are left out: PostgreSQL indexes no more than 1 MB of a row."""
_NAMES = ("num_turns", "num_tool_calls", "num_tool_errors", "tokens_by_role", "tools")


def messages_of(trajectory: Mapping[str, Any]) -> tuple[Message, ...]:
    """Return the messages of an event's trajectory, none where prompt and response say everything."""
    messages = from_document(trajectory.get("messages") or ())
    return () if is_plain(messages) else messages


def count_columns(messages: Sequence[Message]) -> dict[str, Any]:
    """Return a trajectory's counts, all None without messages."""
    if not messages:
        return dict.fromkeys(_NAMES)
    return {
        "num_turns": max(turns(messages)),
        "num_tool_calls": sum(message.kind == "tool_call" for message in messages),
        "num_tool_errors": sum(message.is_error for message in messages),
        "tokens_by_role": tokens_by_role(messages),
        "tools": sorted({storable_text(message.tool) for message in messages if message.tool}),
    }


def text_columns(messages: Sequence[Message]) -> dict[str, Any]:
    """Return what is stored next to a trajectory's text."""
    if not messages:
        return {"messages": None, "role_words": None}
    return {"messages": as_document(messages), "role_words": _role_words(messages)}


def _role_words(messages: Sequence[Message]) -> str:
    by_label: dict[str, dict[str, None]] = {}
    for message in messages:
        if message.tool:
            by_label.setdefault(TOOL, {})["".join(words_of(message.tool))] = None
        words = dict.fromkeys(words_of(message.text))
        for label in {message.role, speaker(message).partition(" ")[0]}:
            by_label.setdefault(label, {}).update(words)
    every = (labelled(label, word) for label, words in by_label.items() for word in words)
    return storable_text(" ".join((CONVERSATION, *every))[:MAX_ROLE_CHARACTERS])
