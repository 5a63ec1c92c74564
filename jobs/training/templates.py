"""Prompt templates: from a question's messages to the text that a model continues."""

from collections.abc import Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Protocol

import yaml

TEMPLATES_FILE = Path(__file__).parent / "prompt_templates.yaml"
QUESTION_MARK = "{Question}"

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


class ChatTokenizer(Protocol):
    """A tokenizer with a chat template."""

    def apply_chat_template(
        self, conversation: list[Message], *, tokenize: bool, add_generation_prompt: bool
    ) -> object:
        """Return the messages as one text, ready for the assistant's answer."""
        ...


@cache
def template_text(name: TemplateName) -> str:
    """Return a template's text, with `{Question}` where the question goes."""
    templates = yaml.safe_load(TEMPLATES_FILE.read_text(encoding="utf-8"))
    return str(templates[name.value]["text"])


def render_prompt(name: TemplateName, messages: Sequence[Message]) -> str:
    """Return the prompt for the last message, without a tokenizer; a row's system message is not used.

    Raises:
        ValueError: The template is `chat`, which needs a tokenizer.
    """
    if name is TemplateName.CHAT:
        raise ValueError("template: chat is the tokenizer's template; use render_chat_prompt.")
    return template_text(name).replace(QUESTION_MARK, messages[-1]["content"].strip())


def render_chat_prompt(messages: Sequence[Message], tokenizer: ChatTokenizer) -> str:
    """Return the messages in the tokenizer's chat template, with the beginning of the assistant's turn.

    Raises:
        ValueError: The tokenizer has no chat template or refuses the messages.
    """
    try:
        # Templates are programs of the model's authors, which may raise any error.
        return str(tokenizer.apply_chat_template(list(messages), tokenize=False, add_generation_prompt=True))
    except Exception as error:
        raise ValueError(f"template: the tokenizer's chat template cannot be used ({error}).") from error
