"""The chat template of a model on this machine, and prompts in it without loading the tokenizer.

A template is a program of the model's authors, so it runs in a process with little time and memory.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from jobs.preflight.model_shapes import model_file
from jobs.training.templates import Message

TEMPLATE_FILE = "chat_template.jinja"
SETTINGS_FILE = "tokenizer_config.json"
MAX_SECONDS = 10.0
_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")


class ChatTemplateError(ValueError):
    """A chat template that cannot be used; the message says why."""


def read_chat_template(source: str, revision: str | None = None) -> str | None:
    """Return the chat template of a model in a folder or downloaded before; None if it has none or is not here."""
    path = model_file(source, TEMPLATE_FILE, revision)
    if path is not None:
        return path.read_text(encoding="utf-8")
    template = _read_settings(source, revision).get("chat_template")
    return template if isinstance(template, str) else None


def render_chat_prompts(
    source: str, revision: str | None, template: str, conversations: Sequence[Sequence[Message]]
) -> list[str]:
    """Return each conversation in the model's chat template, with the beginning of the assistant's turn.

    Raises:
        ChatTemplateError: The template is no template, refuses a conversation, or takes too much time or memory.
    """
    settings = _read_settings(source, revision)
    tokens = {name: _token_text(settings.get(name)) for name in _TOKENS}
    task = {"template": template, "tokens": tokens, "conversations": [list(item) for item in conversations]}
    command = [sys.executable, "-P", "-m", "jobs.preflight.chat_template_process"]
    try:
        done = subprocess.run(command, input=json.dumps(task).encode(), capture_output=True, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        raise ChatTemplateError(f"it takes more than {MAX_SECONDS:.0f} seconds") from None
    if done.returncode:
        reason = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ChatTemplateError(reason or f"it ended with code {done.returncode}")
    prompts: list[str] = json.loads(done.stdout)
    return prompts


def _read_settings(source: str, revision: str | None) -> dict[str, object]:
    path = model_file(source, SETTINGS_FILE, revision)
    try:
        content = {} if path is None else json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def _token_text(token: object) -> str | None:
    content = token.get("content") if isinstance(token, dict) else token
    return content if isinstance(content, str) else None
