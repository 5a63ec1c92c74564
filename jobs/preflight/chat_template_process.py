"""The process that puts conversations into a chat template: JSON in, JSON out, as transformers renders them."""

import json
import resource
import sys
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_BYTES = 2**30
MAX_CPU_SECONDS = 8


def render(task: dict[str, Any]) -> list[str]:
    """Return the conversations of a task in its template, each with the beginning of the assistant's turn.

    Source: transformers, `utils/chat_template_utils.py`, which imports torch.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, ensure_ascii=False, **options)
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    template = environment.from_string(task["template"])
    given = {name: text for name, text in task["tokens"].items() if text is not None}
    return [
        template.render(messages=messages, add_generation_prompt=True, tools=None, documents=None, **given)
        for messages in task["conversations"]
    ]


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (MAX_CPU_SECONDS, MAX_CPU_SECONDS))
    json.dump(render(json.load(sys.stdin)), sys.stdout)
