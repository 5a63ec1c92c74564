"""Conversations in a model's chat template.

A template is a program of the model's authors, so it runs in a process with little time and memory.
"""

import atexit
import json
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from threading import Lock
from types import TracebackType
from typing import Protocol, Self

from jobs.pretrained.chat_template_process import MAX_CPU_SECONDS

MAX_PROCESSES = 2
"""That are kept: a training run has one template, the playground compares models."""
_processes: dict[str, "TemplateProcess"] = {}
_lock = Lock()


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


class TemplateProcess:
    """One template in a process that ends with this one."""

    def __init__(self, template: str, tokens: Mapping[str, str | None]) -> None:
        command = [sys.executable, "-P", "-m", "jobs.pretrained.chat_template_process"]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self._write({"template": template, "tokens": dict(tokens)})

    def render(self, messages: Sequence[Mapping[str, str]], *, adds_turn: bool = True) -> str:
        """Return the messages in the template, by default with the beginning of the assistant's turn.

        Raises:
            ChatTemplateError: The template is none, refuses the messages, or takes too much time or memory.
        """
        self._write([[dict(message) for message in messages], adds_turn])
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            code = self._process.wait()
            is_late = code == -signal.SIGXCPU
            raise ChatTemplateError(f"it takes more than {MAX_CPU_SECONDS} seconds" if is_late else f"it ended: {code}")
        answer = json.loads(line)
        if "text" not in answer:
            raise ChatTemplateError(answer["error"])
        return str(answer["text"])

    def _write(self, content: object) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps(content).encode() + b"\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, which the answer says

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        with self._process:
            pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def render_in_process(
    template: str,
    tokens: Mapping[str, str | None],
    messages: Sequence[Mapping[str, str]],
    *,
    adds_turn: bool = True,
) -> str:
    """Return the messages in a template; its process is kept for the next ones.

    Raises:
        ChatTemplateError: As of `TemplateProcess.render`.
    """
    key = json.dumps([template, dict(tokens)])
    with _lock:
        if key not in _processes:
            while len(_processes) >= MAX_PROCESSES:
                _processes.pop(next(iter(_processes))).close()
            _processes[key] = TemplateProcess(template, tokens)
        try:
            return _processes[key].render(messages, adds_turn=adds_turn)
        except ChatTemplateError:
            _processes.pop(key).close()
            raise


@atexit.register
def _end_all() -> None:
    for process in _processes.values():
        process.close()
