"""The process that puts conversations into a chat template: JSON in and JSON out, as transformers renders them.

The first line has the template and its tokens, each further one a conversation. It ends with its input, or by force
when a conversation takes too long.
"""

import json
import resource
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import TemplateError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_BYTES = 2**30
MAX_CPU_SECONDS = 8
"""Of one conversation."""
MAX_CHARACTERS = 1 << 24
MAX_ERROR_CHARACTERS = 300


class _GenerationBlocks(Extension):
    """`{% generation %}` around an assistant's text, which the tokenizer may look for and which changes no text."""

    tags = {"generation"}  # noqa: RUF012 - as jinja2 declares it

    def parse(self, parser: Parser) -> nodes.Node | list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def compile_template(template: str, tokens: dict[str, str | None]) -> Callable[[Any, bool], str]:
    """Return what renders one conversation, with the beginning of the assistant's turn where that is asked for.

    Source: transformers, `utils/chat_template_utils.py`, which imports torch.
    """
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationBlocks, "jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **({"ensure_ascii": False} | options))
    environment.globals["raise_exception"] = _refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().astimezone().strftime(form)
    compiled = environment.from_string(template)
    given = {name: text for name, text in tokens.items() if text is not None}
    return lambda messages, adds_turn: compiled.render(
        messages=messages, add_generation_prompt=adds_turn, tools=None, documents=None, **given
    )


def main() -> None:
    """Answer each line of the input: `{"text": ...}`, or `{"error": ...}` with why there is none."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_BYTES, MAX_BYTES))
    task = json.loads(sys.stdin.readline())
    render: Callable[[Any, bool], str] | None = None
    for line in sys.stdin:
        _limit_time()
        try:
            render = render or compile_template(task["template"], task["tokens"])
            text = render(*json.loads(line))
            is_long = len(text) > MAX_CHARACTERS
            answer = {"error": f"it writes more than {MAX_CHARACTERS:,} characters"} if is_long else {"text": text}
        except MemoryError:
            answer = {"error": f"it takes more than {MAX_BYTES:,} bytes of memory"}
        except Exception as error:  # noqa: BLE001 - a template is a program, which may raise any error
            answer = {"error": " ".join(str(error).split())[:MAX_ERROR_CHARACTERS] or type(error).__name__}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def _limit_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + 1 + MAX_CPU_SECONDS, hard))


def _refuse(message: str) -> NoReturn:
    raise TemplateError(message)


if __name__ == "__main__":
    main()
