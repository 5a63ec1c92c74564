"""The two ways to score an answer, side by side.

| Case | paper | training |
|---|---|---|
| no box | unparsed | unparsed |
| several boxes | the last one | the last one |
| the last box never closes | unparsed | the last one that closes |
| choice | the published rules on the letter | the label in the box |
| mathematics | the published rules with Math-Verify | Math-Verify |

Choices are never guessed from prose. An answer longer than the cap is unparsed in both.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from typing import Literal

from jobs.grading.boxes import last_boxed, last_boxed_as_published
from jobs.grading.choice_answer import grade_choice
from jobs.grading.math_answer import grade_without_verifier
from jobs.grading.outcomes import Outcome
from jobs.grading.worker_process import Comparison

GRADING_RULES = 1
"""Version of the rules: raise it when an answer is decided otherwise. Scores of different versions are not compared."""
AnswerKind = Literal["math", "choice"]
_LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy", "pylatexenc")


class Scheme(StrEnum):
    """By whose rules an answer is scored."""

    PAPER = "paper"
    """The published rules of the Oat grader: last box, its normalisation, no format check."""
    TRAINING = "training"
    """As rewarded: Math-Verify on the last box."""


@dataclass(frozen=True, slots=True)
class GradeItem:
    """One response to grade against the gold answer of its question."""

    gold: str
    response: str
    kind: AnswerKind


@dataclass(frozen=True, slots=True)
class SideBySide:
    """The outcome of one response by each scheme."""

    paper: Outcome
    training: Outcome


def decide(item: GradeItem, scheme: Scheme, max_answer_chars: int) -> Outcome | Comparison:
    """Return the outcome where it can be told at once, else what a grading process has to compare."""
    if scheme is Scheme.PAPER:
        return _decide_as_published(item, max_answer_chars)
    boxed = last_boxed(item.response)
    if boxed is not None and len(boxed) > max_answer_chars:
        return Outcome.UNPARSED
    if item.kind == "choice":
        return grade_choice(item.gold, boxed)
    if boxed is None:
        return Outcome.UNPARSED
    return grade_without_verifier(item.gold, boxed) or ("training", item.gold, boxed)


@cache
def grader_version() -> str:
    """Return `GRADING_RULES` with 8 hexadecimal digits of the versions of the libraries that the rules rest on."""
    libraries = ", ".join(f"{library} {version(library)}" for library in _LIBRARIES)
    return f"{GRADING_RULES}-{hashlib.sha256(libraries.encode()).hexdigest()[:8]}"


def _decide_as_published(item: GradeItem, max_answer_chars: int) -> Outcome | Comparison:
    boxed = last_boxed_as_published(item.response)
    if boxed is None or len(boxed) > max_answer_chars:
        return Outcome.UNPARSED
    return Outcome.CORRECT if boxed == item.gold else ("paper", item.gold, boxed)
