"""What a session shows while the database is unavailable: the last answer to each question, and its age."""

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, TypeVar

import streamlit as st

from exgrpo_core.errors import first_line

RETRY_SECONDS = 2.0
MAX_ANSWERS = 160
"""As many as the largest page needs, a comparison of twenty runs; a session must not keep all answers forever."""

Answer = TypeVar("Answer")


class NoAnswerError(RuntimeError):
    """The database is unavailable and never answered this question in this session; one sentence why."""


@dataclass(slots=True)
class _Memory:
    answers: dict[Hashable, Any] = field(default_factory=dict)
    answered_at: float | None = None
    """Monotonic seconds of the last answer."""
    reason: str = ""
    """Why the database is unavailable; empty while it answers."""
    retry_at: float = 0.0


def ask(question: Hashable, query: Callable[[], Answer], unavailable: tuple[type[Exception], ...]) -> Answer:
    """Return the query's answer, or the last one to this question while the query raises an `unavailable` error.

    An unavailable database is asked again after some seconds, so that a page does not wait for each of its questions.

    Raises:
        NoAnswerError: It is unavailable, and there is no earlier answer.
    """
    memory = _memory()
    if time.monotonic() >= memory.retry_at:
        try:
            return _keep(memory, question, query())
        except unavailable as error:
            memory.reason = first_line(error)
            memory.retry_at = time.monotonic() + RETRY_SECONDS
    if question not in memory.answers:
        raise NoAnswerError(memory.reason)
    answer: Answer = memory.answers[question]
    return answer


def unavailable_reason() -> str:
    """Return why the database is unavailable, empty while it answers."""
    return _memory().reason


def age_seconds() -> float | None:
    """Return the age of this session's newest answer; None before the first."""
    answered_at = _memory().answered_at
    return None if answered_at is None else time.monotonic() - answered_at


def _keep(memory: _Memory, question: Hashable, answer: Answer) -> Answer:
    memory.answers.pop(question, None)
    memory.answers[question] = answer
    if len(memory.answers) > MAX_ANSWERS:
        del memory.answers[next(iter(memory.answers))]
    memory.answered_at, memory.reason, memory.retry_at = time.monotonic(), "", 0.0
    return answer


def _memory() -> _Memory:
    memory: _Memory = st.session_state.setdefault("last-answers", _Memory())
    return memory
