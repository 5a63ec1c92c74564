r"""The three ways to score an answer, side by side; the written rules stand here.

| Case | paper | training | corrected |
|---|---|---|---|
| no box | unparsed | unparsed | unparsed; in a choice the last line `ANSWER: C` counts |
| several different boxes | the last one | the last one | the last one, unless others stand in its paragraph: unparsed |
| the last box never closes | unparsed | the last one that closes | the last one that closes |
| choice | the same rules on the letter | the label in the box | that, and digits for letters |

Where the answer is mathematics, `training` is Math-Verify and `paper` the published rules with Math-Verify. `corrected`
decides these cases by itself and leaves all others to Math-Verify:

| Case | corrected |
|---|---|
| `6*7` for 42 | wrong: a sum or product that is still to be calculated; `2^{10}`, `5!`, `\binom42` are answers |
| `8.7\times10^8` for 8.7e8 | equal numbers are correct |
| `1 000`, `1\,000`, `1,000` | digits join in groups of three only: `1\ 2` is not 12, `32, 349` is two numbers |
| `3 1/2`, `3\frac12` | a mixed number, 7/2; never 31/2; the part behind must be a proper fraction |
| `5 million`, `5K` | a scale multiplies: 5,000,000 and 5,000, not 5; a converted number must be exact |
| `36 km/h` for `10 m/s` | units on both sides are compared and converted; `5 km` for `5 m` is wrong |
| a unit on one side only, or one that the table of `units` lacks | the numbers are compared |
| `0.5\%` for 0.5 | not equal; a share may be given in per cent (`50\%`), and a gold above 1 may lack its sign |
| `5` for `5m` | wrong: a letter right behind a gold number is a variable; `5 m` and `5\text{m}` are lengths |
| `1010_3` for `1010_2` | wrong: digits and base are compared; a base on one side only is the one asked for |
| `\{1,2\}` for `(1,2)` | wrong, and the reverse; `1,2` or `{1,2}` is either, in the tuple's order |
| `5 \text{ is wrong}`, `\neq 5` | unparsed: the last number is denied; `not 6, it is 5` is 5 |

Choices are never guessed from prose. An answer longer than the cap is unparsed in all three.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Literal

from jobs.grading.boxes import last_boxed, last_boxed_as_published
from jobs.grading.choice_answer import grade_choice, grade_choice_leniently
from jobs.grading.corrected import decide_corrected
from jobs.grading.math_answer import grade_without_verifier
from jobs.grading.outcomes import Outcome
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
    """As training, with numbers, units, bases, brackets and choice labels read as people mean them."""


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
        return decide_corrected(item.gold, boxed, item.response)
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
