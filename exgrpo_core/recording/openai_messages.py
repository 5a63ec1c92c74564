"""Messages as OpenAI's chat API and its relatives write them.

Thinking is a field of the message or a part of its content; so are tool calls. Images and other media become
placeholders.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

from exgrpo_core.bounded_json import parse_json
from exgrpo_core.recording.rows import Message, MessageKind

Row = dict[str, Any]
_ROLES = {
    "system": "system", "developer": "system",
    "user": "user", "human": "user",
    "assistant": "assistant", "gpt": "assistant", "model": "assistant",
    "tool": "tool", "function": "tool", "ipython": "tool", "environment": "tool",
}  # fmt: skip
_THINKING = ("reasoning_content", "reasoning", "thinking")
_TEXTS = ("text", "input_text", "output_text")


def messages_of(row: Row, name: str, role: str = "user", *, is_generated: bool = True) -> tuple[Message, ...]:
    """Return the messages of a field: a list of them, or a text, which is one message of `role`.

    The assistant's messages count as generated, unless `is_generated` is false (a prompt) or they are not `trainable`.

    Raises:
        ValueError: The field is something else.
    """
    value = row.get(name)
    if isinstance(value, str):
        return (Message(role, value, is_generated=is_generated and role == "assistant"),)
    if not isinstance(value, list) or not all(isinstance(message, dict) for message in value):
        raise ValueError(f"{name}: expected a text or a list of messages, got {str(value)[:40]!r}.")
    tools: dict[str, str] = {}
    found: list[Message] = []
    for message in value:
        given = message.get("role", message.get("from"))
        if not isinstance(given, str) or given not in _ROLES:
            raise ValueError(f"{name}: expected the role system, user, assistant or tool, got {str(given)[:40]!r}.")
        is_own = is_generated and _ROLES[given] == "assistant" and message.get("trainable") is not False
        turn = _Turn(_ROLES[given], is_own, tools)
        found.extend(turn.messages(message))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Turn:
    role: str
    is_generated: bool
    tools: dict[str, str]
    """The tool of each call by the call's id, which results name."""

    def messages(self, message: Row) -> Iterator[Message]:
        thought = next((message[key] for key in _THINKING if message.get(key)), None)
        if thought is not None:
            yield self._part(thought, "thinking")
        content = message.get("content", message.get("value"))
        calls = message.get("tool_calls") or ()
        if self.role == "tool":
            tool = message.get("name") or message.get("function")
            yield self._result(message, content, str(tool or self._tool_of(message, "tool_call_id")))
        elif isinstance(content, list):
            yield from map(self._piece, content)
        elif content or not (calls or thought):
            yield self._part(content)
        yield from map(self._call, calls)

    def _piece(self, piece: object) -> Message:
        if not isinstance(piece, dict):
            return self._part(piece)
        kind = piece.get("type", "text")
        if kind in _TEXTS:
            return self._part(piece.get("text"))
        if kind in _THINKING:
            return self._part(next((piece[key] for key in _THINKING if piece.get(key)), None), "thinking")
        if kind == "tool_use":
            return self._call(piece)
        if kind == "tool_result":
            return self._result(piece, piece.get("content"), self._tool_of(piece, "tool_use_id"))
        crc = crc32(as_text(piece).encode("utf-8", "surrogatepass"))  # other images make other prompts
        mark = f" {crc:08x}" if len(piece) > 1 else ""
        return self._part(f"[{str(kind).removeprefix('input_').removesuffix('_url')}{mark}]", "image")

    def _call(self, call: object) -> Message:
        fields = call if isinstance(call, dict) else _parsed(call)
        function = fields.get("function")
        inner = function if isinstance(function, dict) else fields
        tool = str(inner.get("name") or (function if isinstance(function, str) else ""))
        self.tools[str(fields.get("id"))] = tool
        return self._part(inner.get("arguments", inner.get("input")), "tool_call", tool)

    def _result(self, fields: Row, content: object, tool: str) -> Message:
        pieces = [self._piece(piece).text for piece in content] if isinstance(content, list) else None
        is_error = bool(fields.get("is_error") or fields.get("error") or fields.get("status") == "error")
        return Message(self.role, as_text(content) if pieces is None else "\n".join(pieces), "tool_result", tool,
                       is_error=is_error)  # fmt: skip

    def _tool_of(self, fields: Row, name: str) -> str:
        return self.tools.get(str(fields.get(name)), "")

    def _part(self, text: object, kind: MessageKind = "text", tool: str = "") -> Message:
        return Message(self.role, as_text(text), kind, tool, self.is_generated)


def _parsed(call: object) -> Row:
    """Return a call that is written as JSON, as verifiers did; any other is all arguments."""
    try:
        value = parse_json(call) if isinstance(call, str) else None
    except ValueError:
        value = None
    return value if isinstance(value, dict) else {"arguments": call}


def as_text(value: object) -> str:
    """Return a value as a text: JSON unless it is one, empty for None."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
