"""Demonstrations of several turns: each of the assistant's is imitated, after all that comes before it.

What a message holds has to be in the text that the model's chat template makes of it: nothing is left out in silence.
"""

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from exgrpo.jobs.training.data_rows import DataError, check_text
from exgrpo.jobs.training.pretrained.chat_templates import ChatTemplateError, render_conversation
from exgrpo.jobs.training.templates import ControlTokenError, refuse_control_tokens
from exgrpo_core.errors import shown
from exgrpo_core.types import Int32Array, Question

Turn = dict[str, Any]
_FIELDS = {
    "assistant": {"content", "reasoning_content", "tool_calls"},
    "tool": {"content", "tool_call_id", "name"},
    "user": {"content"},
    "system": {"content"},
}
"""What a message of a role may hold in addition to the role."""


def read_turns(value: object, prompt: Sequence[Mapping[str, Any]], label: str) -> list[Turn]:
    """Return the messages of a demonstration from the assistant's first to its last; a text is one message.

    Messages before these repeat the row's `prompt`, or its last messages.

    Raises:
        DataError: It is neither, a message holds what cannot be trained, or the messages before are not of the prompt.
    """
    if isinstance(value, str) and value:
        return [{"role": "assistant", "content": check_text(value, label)}]
    messages = [_read_message(item, f"{label}, message {place}") for place, item in enumerate(_listed(value), start=1)]
    places = [place for place, message in enumerate(messages) if message["role"] == "assistant"]
    if not places:
        raise DataError(
            f"{label}: expected a response, a text or a list of messages with the assistant's, got {shown(value)}; "
            "name its column in sft.response_column or external_column."
        )
    _check_start(messages[: places[0]], prompt, label)
    return messages[places[0] : places[-1] + 1]


def _check_start(messages: Sequence[Turn], prompt: Sequence[Mapping[str, Any]], label: str) -> None:
    asked = [(item["role"], item["content"].strip()) for item in prompt]
    for back, message in enumerate(reversed(messages), start=1):
        if back > len(asked) or (message["role"], message["content"].strip()) != asked[-back]:
            raise DataError(
                f"{label}, message {len(messages) + 1 - back}: is not the row's prompt, which is asked; write the same "
                "in both, or begin with the assistant's message."
            )


def _listed(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _read_message(item: object, label: str) -> Turn:
    if not isinstance(item, dict):
        raise DataError(f"{label}: expected an object with role and content, got {shown(item)}.")
    message = {key: value for key, value in item.items() if value not in (None, "", [], {})}
    role = message.setdefault("role", "assistant")
    if role not in _FIELDS:
        raise DataError(f"{label}, role: expected {', '.join(_FIELDS)}, got {shown(role)}.")
    if odd := sorted(message.keys() - _FIELDS[role] - {"role"}):
        raise DataError(f"{label}, {odd[0]}: cannot be trained in a message of the {role}; remove it.")
    for field in sorted(message.keys() - {"tool_calls"}):
        if not isinstance(message[field], str):
            raise DataError(f"{label}, {field}: expected a text, got {shown(message[field])}.")
        check_text(message[field], f"{label}, {field}")
    if len(message) == 1:
        raise DataError(f"{label}, content: expected a text, got {shown(item.get('content'))}.")
    if "tool_calls" in message:
        message["tool_calls"] = [_read_call(call, f"{label}, tool_calls") for call in _listed(message["tool_calls"])]
    return {"content": "", **message}


def _read_call(call: object, label: str) -> Turn:
    """Return a call with its arguments as an object, which templates expect; OpenAI's format has them as JSON."""
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(call, dict) or not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise DataError(f"{label}: expected objects with a function that has a name, got {shown(call)}.")
    arguments = function.get("arguments") or {}
    try:
        arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        raise DataError(f"{label}: expected arguments in JSON, got {shown(arguments)}.") from None
    return {**call, "function": {**function, "arguments": arguments}}


def is_one_text(turns: Sequence[Turn]) -> bool:
    """Return whether a demonstration is one text, which every prompt template can precede."""
    return len(turns) == 1 and turns[0].keys() == {"role", "content"}


def one_text(turns: Sequence[Turn], label: str) -> str:
    """Return the text of an off-policy trajectory.

    Raises:
        DataError: It has several turns, or more than a text.
    """
    if is_one_text(turns):
        return str(turns[0]["content"])
    field = next((name for name in ("tool_calls", "reasoning_content") if name in turns[0]), "messages")
    raise DataError(f"{label}, {field}: an off-policy trajectory is one text of the assistant; write one.")


def encode_turns(
    question: Question,
    prompt: Sequence[Mapping[str, str]],
    turns: Sequence[Turn],
    tokenizer: Any,  # noqa: ANN401 (any Hugging Face tokenizer)
    label: str,
) -> list[tuple[Int32Array, Int32Array]]:
    """Return each of the assistant's turns as tokens, after those of all before it, in the model's chat template.

    Raises:
        DataError: The prompt is not in a chat template, or the template leaves something out.
    """

    def render(given: Sequence[Turn], *, adds_turn: bool) -> str:
        messages: list[Any] = [*prompt, *given]
        template, tokens = tokenizer.get_chat_template(), tokenizer.special_tokens_map
        return render_conversation(template, tokens, messages, adds_turn=adds_turn)

    if not getattr(tokenizer, "chat_template", None) or render([], adds_turn=True) != question.prompt_text:
        raise DataError(
            f"{label}: only a chat template writes several turns, tool_calls or reasoning_content; set data.template "
            "to chat, or write one text."
        )
    try:
        refuse_control_tokens(turns, tokenizer)
        places = [index for index, turn in enumerate(turns) if turn["role"] == "assistant"]
        return [_encode_turn(index, turns, render, tokenizer, label) for index in places]
    except ControlTokenError as error:
        raise DataError(f"{label}: {error}") from None
    except ValueError as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{label}: the chat template refuses the messages ({error}).") from error


def _encode_turn(
    index: int,
    turns: Sequence[Turn],
    render: Callable[..., str],
    tokenizer: Any,  # noqa: ANN401 (any Hugging Face tokenizer)
    label: str,
) -> tuple[Int32Array, Int32Array]:
    before, whole = render(turns[:index], adds_turn=True), render(turns[: index + 1], adds_turn=False)
    if not whole.startswith(before):
        raise DataError(
            f"{label}, turn {index + 1}: the model's chat template writes the assistant's turn in another way than it "
            "begins it; choose another model, or write one text."
        )
    response = whole[len(before) :].rstrip()
    marked = [_marked(turn, f"mark{number}") for number, turn in enumerate(turns[: index + 1])]
    with contextlib.suppress(ChatTemplateError):  # it reads the texts, so that marks tell nothing
        _check_all_written(marked, render(marked, adds_turn=False), "", label)
    _check_all_written(turns[: index + 1], before, response, label)
    ids = tokenizer.encode(response, add_special_tokens=False)
    if not ids or ids[-1] not in tokenizer.all_special_ids:
        ids = [*ids, tokenizer.eos_token_id]
    prompt_ids = tokenizer.encode(before, add_special_tokens=False)
    return np.asarray(prompt_ids, dtype=np.int32), np.asarray(ids, dtype=np.int32)


def _marked(turn: Turn, mark: str) -> Turn:
    """Return a turn with a text of its own for each of its texts: a result such as 5 is also part of other texts."""
    functions = [
        {
            "name": f"{mark}call{place}",
            "arguments": _marked_value(call["function"]["arguments"], f"{mark}call{place}value"),
        }
        for place, call in enumerate(turn.get("tool_calls", ()))
    ]
    calls = [
        call | {"function": function} for call, function in zip(turn.get("tool_calls", ()), functions, strict=True)
    ]
    texts = {field: f"{mark}{field}" for field in ("content", "reasoning_content") if turn.get(field, "").strip()}
    return {**turn, **texts, **({"tool_calls": calls} if calls else {})}


def _marked_value(value: object, mark: str) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, dict):
        return {key: _marked_value(item, f"{mark}in{place}") for place, (key, item) in enumerate(value.items())}
    if isinstance(value, list):
        return [_marked_value(item, f"{mark}item{place}") for place, item in enumerate(value)]
    return mark if isinstance(value, str) and value else value


def _texts_in(value: object) -> list[str]:
    """Return the keys and texts in the arguments of a call."""
    if isinstance(value, dict):
        return [text for key, item in value.items() for text in (str(key), *_texts_in(item))]
    if isinstance(value, list):
        return [text for item in value for text in _texts_in(item)]
    return [value] if isinstance(value, str) else []


def _check_all_written(turns: Sequence[Turn], before: str, response: str, label: str) -> None:
    """Refuse turns if one of their texts is left out: the last in the response, all but the assistant's before it."""
    for number, turn in enumerate(turns, start=1):
        if number == len(turns) or turn["role"] != "assistant":
            _check_written(turn, (response or before) if number == len(turns) else before, f"{label}, turn {number}")


def _check_written(turn: Turn, text: str, label: str) -> None:
    needed = {field: [turn.get(field, "").strip()] for field in ("content", "reasoning_content")}
    calls = [call["function"] for call in turn.get("tool_calls", ())]
    needed["tool_calls"] = [part for call in calls for part in (call["name"], *_texts_in(call["arguments"]))]
    for field, parts in needed.items():
        if any(part not in text and json.dumps(part)[1:-1] not in text for part in parts):
            raise DataError(f"{label}, {field}: the model's chat template does not write it; remove it.")
