"""What a chain of thought knows at each point: numbers of the story, results so far, and what its letters stand for."""

from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import islice, product

from exgrpo.jobs.tasks.word_problems.expressions import (
    Expression,
    Letter,
    Letters,
    NotComputableError,
    Number,
    Reading,
    combine_fingerprints,
    constant_reading,
    evaluate,
    letters_of,
)
from exgrpo.jobs.tasks.word_problems.problem import StoryProblem
from exgrpo.jobs.tasks.word_problems.statements import Equation, Statement

MAX_KNOWN = 150
"""Numbers that are kept; a chain of thought with more of them is not read further."""
MAX_KEPT_READINGS = 8
"""Computations that are kept of one number; those on the way to the answer first, then the newest."""

Span = tuple[int, int]
"""First character, and the one after the last."""
_ROUND = (10, 100)
MAX_LETTERS = 3
MAX_CHOICES = 216
MAX_EQUATIONS = 12


class KnownNumbers:
    """The known numbers, by value: all computations that each may be."""

    def __init__(self, problem: StoryProblem) -> None:
        self.problem = problem
        self.named: dict[Fraction, Span] = {}
        """Numbers that a sentence named without a computation that leads to them, and where first."""
        self._known: dict[Fraction, list[int]] = {}
        self._parts: dict[Fraction, set[int]] = {}
        self._computed: set[Fraction] = set()
        for value, fingerprints in problem.given.items():
            self._add(value, fingerprints)

    @property
    def is_full(self) -> bool:
        """Whether no more numbers are kept."""
        return len(self._known) > MAX_KNOWN

    def lookup(self, value: Fraction) -> frozenset[int]:
        """Return the known computations of a number; tens and ones of a known number are known too."""
        return frozenset(self._known.get(value) or self._parts.get(value) or [])

    def find(self, value: Fraction) -> frozenset[int]:
        """Return the computations of a number that is known, or that one operation in the head leads to."""
        known = self.lookup(value)
        is_on_the_way = known & self.problem.meaningful.get(value, frozenset())
        # What a step computed is what it computed, whatever else has the same value.
        is_settled = is_on_the_way or value in self._computed
        return known if is_settled else known | self.derive_meaningful(value)

    def record(self, value: Fraction, fingerprints: frozenset[int]) -> None:
        """Add computations of a number that a step or sentence led to."""
        self._computed.add(value)
        self.named.pop(value, None)
        self._add(value, fingerprints)

    def _add(self, value: Fraction, fingerprints: frozenset[int]) -> None:
        wanted = self.problem.meaningful.get(value, frozenset())
        newest_first = dict.fromkeys((*sorted(fingerprints), *self._known.get(value, ())))
        kept = sorted(newest_first, key=lambda fingerprint: fingerprint not in wanted)[:MAX_KEPT_READINGS]
        self._known[value] = kept
        self._record_parts(value, kept)

    def derive(self, value: Fraction) -> frozenset[int]:
        """Return every computation of `value` by one operation on two known numbers."""
        derived: set[int] = set()
        for known, fingerprints in self._known.items():
            for operator, other, is_swapped in _partners(value, known):
                for partner in self._known.get(other, ()):
                    for fingerprint in fingerprints:
                        pair = (partner, fingerprint) if is_swapped else (fingerprint, partner)
                        derived.add(combine_fingerprints(operator, *pair))
        return frozenset(derived)

    def derive_meaningful(self, value: Fraction) -> frozenset[int]:
        """Return the computations of `value` by one operation that lead on some way to the answer."""
        wanted = self.problem.meaningful.get(value)
        return self.derive(value) & wanted if wanted else frozenset()

    def _record_parts(self, value: Fraction, fingerprints: Iterable[int]) -> None:
        """Add what 48 has as tens and ones, 40 and 8, so that 3 * 48 may be 3 * 40 + 3 * 8."""
        for unit in _ROUND:
            rest = value % unit
            if value.denominator != 1 or value <= unit or not rest:
                continue
            (less,) = constant_reading(rest)
            self._parts.setdefault(rest, set()).add(less)
            rounded = self._parts.setdefault(value - rest, set())
            rounded.update(combine_fingerprints("-", item, less) for item in fingerprints)


def _partners(value: Fraction, known: Fraction) -> list[tuple[str, Fraction, bool]]:
    partners = [("+", value - known, False), ("-", known - value, False)]
    if known:
        partners += [("*", value / known, False), ("/", value * known, True)]
    return partners


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
    for index, sides in enumerate(equations):
        try:
            values = {evaluate(side, lambda _: frozenset(), letters).value for side in sides}
        except NotComputableError:
            return index
        if len(values) > 1:
            return index
    return len(equations)
