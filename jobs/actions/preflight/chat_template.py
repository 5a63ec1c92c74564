"""The chat template and the tokenizer of a model on this machine, without loading a training library."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from exgrpo_core.bounded_json import UnreadableFileError, read_json, read_plain
from exgrpo_core.errors import first_line
from jobs.specs.mistakes import SpecError
from jobs.training.pretrained.chat_templates import render_conversation
from jobs.training.pretrained.model_shapes import model_file
from jobs.training.templates import Message

if TYPE_CHECKING:
    from tokenizers import Tokenizer  # type: ignore[import-untyped]

TEMPLATE_FILE = "chat_template.jinja"
SETTINGS_FILE = "tokenizer_config.json"
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


def read_chat_template(source: str, revision: str | None = None) -> str | None:
    """Return the chat template of a model in a folder or downloaded before; None if it has none that is read."""
    path = model_file(source, TEMPLATE_FILE, revision)
    if path is not None:
        try:
            return read_plain(path).decode(errors="replace")
        except (OSError, UnreadableFileError):
            return None
    template = _read_settings(source, revision).get("chat_template")
    if isinstance(template, list):
        named = [item for item in template if isinstance(item, dict)]
        template = next((item.get("template") for item in named if item.get("name") == "default"), None)
    return template if isinstance(template, str) else None


def check_chat_template(field: str, source: str, revision: str | None = None) -> None:
    """Refuse a model without a chat template, where its tokenizer is on this machine.

    Raises:
        SpecError: It has none; the sentence begins with the field that asks for one.
    """
    is_here = model_file(source, SETTINGS_FILE, revision) is not None
    if is_here and read_chat_template(source, revision) is None:
        raise SpecError("expected another template than chat, since the model has no chat template.", field)


def render_chat_prompts(
    source: str, revision: str | None, template: str, conversations: Sequence[Sequence[Message]]
) -> list[str]:
    """Return each conversation in the model's chat template, with the beginning of the assistant's turn.

    Raises:
        ChatTemplateError: The template is no template, or refuses a conversation.
    """
    settings = _read_settings(source, revision)
    tokens = {name: _token_text(settings.get(name)) for name in _TOKENS}
    return [render_conversation(template, tokens, messages) for messages in conversations]


def _read_settings(source: str, revision: str | None) -> dict[str, object]:
    path = model_file(source, SETTINGS_FILE, revision)
    try:
        return {} if path is None else read_json(path)
    except (OSError, UnreadableFileError):
        return {}


def _token_text(token: object) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None


def read_tokenizer(path: Path) -> "Tokenizer":
    """Return the tokenizer of a file.

    Raises:
        UnreadableFileError: The file is damaged.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_file(str(path))
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the reader raises bare exceptions, and for some files a panic of Rust's
        raise UnreadableFileError(f"{path}: is no tokenizer ({first_line(error)}); use another copy.") from error
