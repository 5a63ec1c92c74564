"""Conversations in a model's chat template, which is a program of the model's authors and runs in jinja's sandbox."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import NoReturn, Protocol

from jinja2 import Template, TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class ChatTemplateError(ValueError):
    """A chat template that cannot be used; the message says why."""


class ChatTokenizer(Protocol):
    """The chat template of a tokenizer, which may have none."""

    @property
    def special_tokens_map(self) -> dict[str, str]:
        """The texts of special tokens, which templates use, by their names."""
        ...

    def get_chat_template(self) -> str:
        """Return the template for messages alone."""
        ...


_TODAY = datetime(2024, 7, 26, tzinfo=UTC)
"""What templates get for today, so that a run that is resumed, or done again, has the same prompts."""


class _GenerationBlocks(Extension):
    """`{% generation %}` around an assistant's text, which the tokenizer may look for and which changes no text."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def render_conversation(
    template: str, tokens: Mapping[str, str | None], messages: Sequence[Mapping[str, str]], *, adds_turn: bool = True
) -> str:
    """Return the messages in a template, by default with the beginning of the assistant's turn.

    Raises:
        ChatTemplateError: The template is none, or refuses the messages.
    """
    given = {name: text for name, text in tokens.items() if text is not None}
    try:
        return _compile(template).render(
            messages=[dict(message) for message in messages],
            add_generation_prompt=adds_turn, tools=None, documents=None, **given,
        )  # fmt: skip
    except Exception as error:  # a template is a program, which may raise any error
        raise ChatTemplateError(" ".join(str(error).split()) or type(error).__name__) from error


@lru_cache(maxsize=2)
def _compile(template: str) -> Template:
    """Return a template with what transformers gives templates.

    Source: transformers, `utils/chat_template_utils.py`, which imports torch.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **({"ensure_ascii": False} | options))
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = _TODAY.strftime
    return environment.from_string(template)


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)
