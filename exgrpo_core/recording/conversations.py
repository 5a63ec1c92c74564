"""What a list of messages is as a whole: its prompt and response, its turns, and how many of what it holds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any

from exgrpo_core.recording.rows import Message

DEFAULTS = {field.name: field.default for field in fields(Message) if field.default is not MISSING}
_NAMES = tuple(field.name for field in fields(Message))
_KINDS_OF_ASSISTANT = {"thinking": "thinking", "tool_call": "call"}


def as_document(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages as JSON values without fields that have their default."""
    return [
        {name: value for name in _NAMES if (value := getattr(message, name)) != DEFAULTS.get(name, MISSING)}
        for message in messages
    ]


def from_document(document: Sequence[Mapping[str, Any]]) -> tuple[Message, ...]:
    """Return the messages of `as_document`.

    Raises:
        TypeError: A message has unknown fields, or lacks its role or text.
    """
    return tuple(Message(**message) for message in document)


def split(messages: Sequence[Message]) -> tuple[Sequence[Message], Sequence[Message]]:
    """Return the prompt, which is all before the first message that the model wrote, and the response."""
    start = next((index for index, message in enumerate(messages) if message.is_generated), len(messages))
    return messages[:start], messages[start:]


def is_plain(messages: Sequence[Message]) -> bool:
    """Return whether the response is one text, and the prompt a user's, or a system's and a user's."""
    prompt, response = split(messages)
    roles = [message.role for message in prompt if message.kind == "text"]
    has_one_text = len(response) == 1 and response[0].role == "assistant" and response[0].kind == "text"
    return has_one_text and len(roles) == len(prompt) and roles in (["user"], ["system", "user"], [])


def text_of(messages: Sequence[Message]) -> str:
    """Return the texts one below the other; where they are of several speakers, each under its speaker."""
    if len({speaker(message) for message in messages}) <= 1:
        return "\n\n".join(message.text for message in messages)
    return "\n\n".join(f"[{speaker(message)}]\n{message.text}" for message in messages)


def speaker(message: Message) -> str:
    """Return who speaks, as a search names it: the role, or `thinking` or `call`, with the name of a tool."""
    name = _KINDS_OF_ASSISTANT.get(message.kind, message.role)
    return f"{name} {message.tool}" if message.tool else name


def turns(messages: Sequence[Message]) -> list[int]:
    """Return the turn of each message: a turn begins where the model starts to write, 0 is the prompt."""
    numbers: list[int] = []
    was_generated = False
    for message in messages:
        begins = message.is_generated and not was_generated
        numbers.append((numbers[-1] if numbers else 0) + begins)
        was_generated = message.is_generated
    return numbers


def tokens_by_role(messages: Sequence[Message]) -> dict[str, int]:
    """Return the tokens of each role, of messages whose tokens are known."""
    counts: Counter[str] = Counter()
    for message in messages:
        if message.num_tokens is not None:
            counts[message.role] += message.num_tokens
    return dict(counts)
