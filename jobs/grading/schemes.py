r"""The three ways to score an answer, side by side; the written rules stand here.

| Case | paper | training | corrected |
|---|---|---|---|
| no box | unparsed | unparsed | unparsed; in a choice the last line `ANSWER: C` counts |
| several different boxes | the last one | the last one | the last one, unless others stand in its paragraph: unparsed |
| the last box never closes | unparsed | the last one that closes | the last one that closes |
| `6*7` for 42 | correct, as Math-Verify says | correct | wrong: a plain number is asked for, not a calculation |
| `8.7\times10^8` for 8.7e8 | as the rules say | as Math-Verify says | equal numbers are correct |
| a unit that the gold lacks | taken out by the rules | as Math-Verify says | taken out |
| choice | the same rules on the letter | the label in the box | that, and digits for letters |

Choices are never guessed from prose. An answer longer than the cap is unparsed in all three.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from jobs.grading.boxes import boxes_of_last_paragraph, last_boxed, last_boxed_as_published
from jobs.grading.choice_answer import grade_choice, grade_choice_leniently
from jobs.grading.math_answer import grade_without_verifier
from jobs.grading.outcomes import Outcome
from jobs.grading.quantities import is_arithmetic, read_quantity, without_unit
from jobs.grading.worker_process import Comparison

AnswerKind = Literal["math", "choice"]
_LIBRARIES = ("math-verify", "latex2sympy2_extended", "sympy", "pylatexenc")


class Scheme(StrEnum):
    """By whose rules an answer is scored."""

    PAPER = "paper"
    """The published rules of the Oat grader: last box, its normalisation, no format check."""
    TRAINING = "training"
    """As rewarded: Math-Verify on the last box."""
    CORRECTED = "corrected"
    """As training, with scientific notation, units and choice labels read as people mean them."""


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
    corrected: Outcome

    @property
    def is_disputed(self) -> bool:
        """Whether the schemes differ on its being correct."""
        return len({outcome is Outcome.CORRECT for outcome in (self.paper, self.training, self.corrected)}) > 1


def decide(item: GradeItem, scheme: Scheme, max_answer_chars: int) -> Outcome | Comparison:
    """Return the outcome where it can be told at once, else what a grading process has to compare."""
    if scheme is Scheme.PAPER:
        return _decide_as_published(item, max_answer_chars)
    boxed = last_boxed(item.response)
    if boxed is not None and len(boxed) > max_answer_chars:
        return Outcome.UNPARSED
    if item.kind == "choice":
        is_lenient = scheme is Scheme.CORRECTED
        return grade_choice_leniently(item.gold, item.response) if is_lenient else grade_choice(item.gold, boxed)
    if boxed is None:
        return Outcome.UNPARSED
    if scheme is Scheme.CORRECTED:
        return _decide_corrected(item, boxed)
    return grade_without_verifier(item.gold, boxed) or ("training", item.gold, boxed)


@cache
def grader_version() -> str:
    """Return 12 hexadecimal digits that change with the rules of grading and with the libraries that they rest on."""
    digest = hashlib.sha256()
    folder = Path(__file__).parent
    for path in sorted([*folder.glob("*.py"), *folder.glob("oat/*.py"), *folder.glob("oat/*.yaml")]):
        digest.update(path.read_bytes())
    for library in _LIBRARIES:
        digest.update(f"{library} {version(library)}".encode())
    return digest.hexdigest()[:12]


def disputed(outcomes: Sequence[SideBySide]) -> list[int]:
    """Return the places of those answers on which the schemes differ."""
    return [index for index, outcome in enumerate(outcomes) if outcome.is_disputed]


def _decide_as_published(item: GradeItem, max_answer_chars: int) -> Outcome | Comparison:
    boxed = last_boxed_as_published(item.response)
    if boxed is None or len(boxed) > max_answer_chars:
        return Outcome.UNPARSED
    return Outcome.CORRECT if boxed == item.gold else ("paper", item.gold, boxed)


def _decide_corrected(item: GradeItem, boxed: str) -> Outcome | Comparison:
    if not boxed.strip() or len({re.sub(r"\s", "", entry) for entry in boxes_of_last_paragraph(item.response)}) > 1:
        return Outcome.UNPARSED
    decided = grade_without_verifier(item.gold, boxed)
    if decided is Outcome.CORRECT:
        return decided
    gold_number = read_quantity(without_unit(item.gold))
    if gold_number is None:
        return decided or ("training", item.gold, boxed)
    bare = without_unit(boxed)
    number = read_quantity(bare)
    if number is not None:
        # Whole numbers are exact; a decimal may be rounded, which is for Math-Verify to decide.
        if number == gold_number:
            return Outcome.CORRECT
        are_whole = number.denominator == 1 and gold_number.denominator == 1
        return Outcome.WRONG if are_whole else ("training", item.gold, boxed)
    return Outcome.WRONG if is_arithmetic(bare) else ("training", item.gold, boxed)
