"""A generated story: its text, its numbers and the steps to its answer, as questions carry them."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

from exgrpo.jobs.tasks.questions import hash_question
from exgrpo.jobs.tasks.word_problems.problem import StoryProblem

SOURCE = "word_problems"
RESULTS = "pqrstu"
INSTRUCTION = "Think step by step and put the final answer in \\boxed{}."
_RESULT = re.compile(rf"\b[{RESULTS}]\b")


@dataclass(frozen=True, slots=True)
class StoryStep:
    """One operation: a formula of the story's numbers a, b, ... and earlier results p, q, ..., and what it counts."""

    formula: str
    names: str


@dataclass(frozen=True, slots=True)
class Story:
    """A story of a form, and `also` other quantities that it is about, as formulas of its numbers."""

    form: str
    text: str
    numbers: tuple[Fraction, ...]
    steps: tuple[StoryStep, ...]
    also: tuple[str, ...] = ()

    @property
    def difficulty(self) -> int:
        """Number of operations."""
        return len(self.steps)

    @property
    def problem(self) -> StoryProblem:
        """The story as the oracle needs it."""
        return _problem(self)

    @property
    def answer(self) -> str:
        """The last result."""
        return str(self.problem.answer.value)

    @property
    def question_id(self) -> str:
        """The question's identity."""
        return hash_question(SOURCE, self.text, self.answer)

    @property
    def prompt(self) -> str:
        """The user's message: how to answer, first since then all prompts of a batch share it, and the story."""
        return f"{INSTRUCTION}\n{self.text}"

    @property
    def number_set(self) -> tuple[Fraction, ...]:
        """The story's numbers without their order."""
        return tuple(sorted(self.numbers))

    def details(self) -> dict[str, object]:
        """Return what a question's metadata holds of the story, as JSON can."""
        return {
            "question": self.text,
            "form": self.form,
            "numbers": [str(number) for number in self.numbers],
            "steps": [[step.formula, step.names] for step in self.steps],
            "also": list(self.also),
        }

    @classmethod
    def from_details(cls, details: Mapping[str, Any]) -> Self:
        """Return the story back.

        Raises:
            ValueError: The details are of no story.
        """
        try:
            return cls(
                form=details["form"],
                text=details["question"],
                numbers=tuple(Fraction(number) for number in details["numbers"]),
                steps=tuple(StoryStep(formula, names) for formula, names in details["steps"]),
                also=tuple(details["also"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"metadata: expected the details of a story, got {str(details)[:60]}.") from error


@lru_cache(maxsize=4096)
def _problem(story: Story) -> StoryProblem:
    """Return the problem of a story; the last step's formula with every earlier result put in is its solution."""
    solutions: dict[str, str] = {}
    formula = ""
    for name, step in zip(RESULTS, story.steps, strict=False):
        formula = _RESULT.sub(lambda match: f"({solutions[match[0]]})", step.formula)
        solutions[name] = formula
    return StoryProblem(story.text, story.numbers, formula, story.also)
