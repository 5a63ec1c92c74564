"""Prompt templates: from a question's messages to the text that a model continues."""

from collections.abc import Hashable, Sequence
from enum import StrEnum
from functools import cache, lru_cache
from pathlib import Path
from typing import Protocol

import yaml

from exgrpo.jobs.tasks.questions import TextEncoder, encode_prompt
from exgrpo.jobs.training.pretrained.chat_templates import ChatTokenizer, render_conversation
from exgrpo_core.errors import FieldError, InputError

TEMPLATES_FILE = Path(__file__).parent / "prompt_templates.yaml"
QUESTION_MARK = "{Question}"
_THOUGHT_MARKS = frozenset({"<think>", "</think>"})

Message = dict[str, str]


class TemplateName(StrEnum):
    """How a question becomes a prompt."""

    PAPER = "paper"
    """The paper's system part, User and Assistant; the response begins inside <think>."""
    PAPER_LLAMA_BASE = "paper_llama_base"
    """The paper's simplified prompt for Llama-3.1 8B base."""
    COMPACT = "compact"
    """The question's text and a line break."""
    NONE = "none"
    """The question's text."""
    CHAT = "chat"
    """The model's chat template on the row's messages, system message included; needs a tokenizer that has one."""
    AUTO = "auto"
    """`CHAT` if the tokenizer has a chat template, else `NONE`."""

    def resolved(self, has_chat_template: bool) -> "TemplateName":
        """Return the template that `auto` means for a tokenizer, any other unchanged."""
        if self is not TemplateName.AUTO:
            return self
        return TemplateName.CHAT if has_chat_template else TemplateName.NONE


@cache
def template_text(name: TemplateName) -> str:
    """Return a template's text, with `{Question}` where the question goes."""
    templates = yaml.safe_load(TEMPLATES_FILE.read_text(encoding="utf-8"))
    return str(templates[name.value]["text"])


def render_prompt(name: TemplateName, messages: Sequence[Message]) -> str:
    """Return the prompt for the last message by a template with a text; a row's system message is not used."""
    return template_text(name).replace(QUESTION_MARK, messages[-1]["content"].strip())


class PromptTokenizer(TextEncoder, ChatTokenizer, Protocol):
    """The part of a tokenizer that prompts need; every Hugging Face tokenizer has it."""


def encode_messages(
    name: TemplateName, messages: Sequence[Message], tokenizer: PromptTokenizer
) -> tuple[str, list[int]]:
    """Return the prompt for a question's messages, as text and as token ids.

    Raises:
        FieldError: The template is `chat` and the tokenizer has none, or refuses the messages.
        ControlTokenError: The messages hold one of the tokenizer's control tokens.
    """
    refuse_control_tokens(messages, tokenizer)
    if name.resolved(bool(getattr(tokenizer, "chat_template", None))) is TemplateName.CHAT:
        text = render_chat_prompt(messages, tokenizer)
        return text, encode_prompt(tokenizer, text)
    text = render_prompt(TemplateName.NONE if name is TemplateName.AUTO else name, messages)
    return text, encode_prompt(tokenizer, text, adds_special_tokens=True)


def render_chat_prompt(messages: Sequence[Message], tokenizer: ChatTokenizer) -> str:
    """Return the messages in the tokenizer's chat template, with the beginning of the assistant's turn.

    Raises:
        FieldError: The tokenizer has no chat template, or it refuses the messages or does not show the question.
    """
    try:
        text = render_conversation(tokenizer.get_chat_template(), tokenizer.special_tokens_map, messages)
    except ValueError as error:
        raise FieldError(
            f"the tokenizer's chat template cannot be used ({error}); choose another one.", "template"
        ) from error
    question = messages[-1]["content"]
    if question.strip() not in text and text == _render_another(messages, tokenizer):
        raise FieldError("the tokenizer's chat template does not show the question; use another one.", "template")
    return text


def _render_another(messages: Sequence[Message], tokenizer: ChatTokenizer) -> str:
    """Return the conversation with another question of the same length: a template may write texts in its own way."""
    other = {**messages[-1], "content": "x" * len(messages[-1]["content"])}
    return render_conversation(tokenizer.get_chat_template(), tokenizer.special_tokens_map, [*messages[:-1], other])


class ControlTokenError(InputError, ValueError):
    """A text of a user with a token that the model would not read as text."""


def refuse_control_tokens(messages: Sequence[Message], tokenizer: object) -> None:
    """Refuse messages that hold a special token of the tokenizer, such as `<|im_end|>`; marks of thoughts are allowed.

    Raises:
        ControlTokenError: They do.
    """
    tokens = _control_tokens(tokenizer)
    found = next((token for token in tokens for message in messages if token in message["content"]), None)
    if found is not None:
        raise ControlTokenError(f"holds {found!r}, which this model reads as a control token; remove it.")


@lru_cache(maxsize=2)
def _control_tokens(tokenizer: Hashable) -> tuple[str, ...]:
    added = getattr(tokenizer, "added_tokens_decoder", {}).values()
    return tuple(token.content for token in added if token.special and token.content not in _THOUGHT_MARKS)
