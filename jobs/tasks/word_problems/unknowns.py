"""What the letters in a chain of thought stand for: the choice under which its equations stay true the longest."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import islice, product

from jobs.tasks.word_problems.expressions import Expression, Letter, Letters, Number, Reading, evaluate, letters_of
from jobs.tasks.word_problems.problem import StoryProblem
from jobs.tasks.word_problems.quantity import NotComputableError
from jobs.tasks.word_problems.statements import Equation, Statement

MAX_LETTERS = 3
MAX_CHOICES = 216
MAX_EQUATIONS = 12


def assign_unknowns(problem: StoryProblem, sentences: Sequence[Sequence[Statement]]) -> Letters:
    """Return a reading for each letter of the chain's equations, none if there are too many letters."""
    equations = _equations(sentences)
    names = sorted(frozenset[str]().union(*(letters_of(side) for sides in equations for side in sides)))
    if not 1 <= len(names) <= MAX_LETTERS:
        return {}
    readings = [Reading(item.value, frozenset({item.fingerprint})) for item in problem.unknowns]
    best: Letters = {}
    best_length = -1
    for chosen in islice(product(readings, repeat=len(names)), MAX_CHOICES):
        letters = dict(zip(names, chosen, strict=True))
        length = _num_true(equations, letters)
        if length > best_length:
            best, best_length = letters, length
        if length == len(equations):
            break
    return best


def _equations(sentences: Sequence[Sequence[Statement]]) -> list[tuple[Expression, ...]]:
    """Return the first equations with letters; those that only define a letter by a calculation are left out."""
    equations = []
    for sentence in sentences:
        for statement in sentence:
            if not isinstance(statement, Equation) or not any(letters_of(side) for side in statement.sides):
                continue
            first, *others = statement.sides
            is_numeric = not any(letters_of(side) for side in others)
            is_definition = isinstance(first, Letter) and is_numeric and not any(isinstance(s, Number) for s in others)
            if not is_definition:
                equations.append(statement.sides)
    return equations[:MAX_EQUATIONS]


def _num_true(equations: Sequence[tuple[Expression, ...]], letters: Letters) -> int:
    """Return how many equations are true before the first false one."""
    for index, sides in enumerate(equations):
        try:
            values = {evaluate(side, _nothing, letters).value for side in sides}
        except NotComputableError:
            return index
        if len(values) > 1:
            return index
    return len(equations)


def _nothing(_: Fraction) -> frozenset[int]:
    return frozenset()
