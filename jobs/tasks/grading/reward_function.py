"""What an engine asks of a grader: responses in, verdicts out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol

from exgrpo_core.types import Int32Array, Question


class Grade(StrEnum):
    """Verdict on one response; only `correct` earns a reward."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNPARSED = "unparsed"
    """No answer was found: no box, an empty or overlong one, one that is not an answer, or a broken format rule."""
    TIMEOUT = "timeout"
    """Grading took longer than the limit and was killed."""
    CRASH = "crash"
    """Grading ran out of memory or took its process down."""


class Decision(NamedTuple):
    """A verdict and the rule by which it was reached, in words."""

    grade: Grade
    rule: str


@dataclass(frozen=True, slots=True)
class Response:
    """What a policy answered: its text without special tokens, and the token ids (T,) as generated."""

    text: str
    token_ids: Int32Array
    is_truncated: bool


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a grader says of a response.

    `outcome` is correct, wrong, unparsed, timeout or crash. `is_valid` tells whether every step holds and `has_code`
    whether the response contains code, where an oracle knows. `parts` has the terms of a weighted reward by name.
    """

    reward: float
    outcome: str
    is_valid: bool | None = None
    has_code: bool | None = None
    parts: Mapping[str, float] = field(default_factory=dict)


class RewardFunction(Protocol):
    """Grades responses. A response that cannot be graded gets a verdict that says so, never an exception."""

    def grade(self, questions: Sequence[Question], responses: Sequence[Response]) -> list[Verdict]:
        """Return one verdict a response, in order; `questions[i]` is what response i answers."""
        ...
