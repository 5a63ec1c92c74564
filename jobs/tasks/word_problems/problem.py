"""A story with its numbers and the computation of its answer, and what else can sensibly be computed on the way."""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import combinations
from typing import Self

from exgrpo.jobs.tasks.word_problems.expressions import (
    RESIDUES,
    Binary,
    Expression,
    Letter,
    Quantity,
    as_quantity,
    combine,
    constant,
    numbers_of,
    parse_formula,
)

NAMES = "abcdefghij"
MAX_TERMS = 6
MAX_FACTORS = 6
COUNTED_ONE_MORE = 12
"""Up to here a number of times may be counted with the thing itself: three times as much again are four parts."""

_UNIT_CONSTANTS = (
    (60, re.compile(r"\b(?:hour|minute|second)", re.IGNORECASE)),
    (7, re.compile(r"\b(?:week|day)", re.IGNORECASE)),
    (24, re.compile(r"\b(?:day|hour)s?\b", re.IGNORECASE)),
    (12, re.compile(r"\b(?:dozen|month|year)", re.IGNORECASE)),
    (52, re.compile(r"\b(?:year)", re.IGNORECASE)),
    (1000, re.compile(r"\b(?:kg|kilo\w{0,8}|km|m|litres?|liters?|ml|grams?|g)\b", re.IGNORECASE)),
)
_EVERYWHERE = (1, 2, 100)
_TIMES = re.compile(r"\b(?:times|twice|double|triple)\b", re.IGNORECASE)
MONEY_SIGNS = "$€£"
_PERCENTAGE = re.compile(r"(\d+(?:\.\d+)?) ?(?:%|percent)")
_PRICE = re.compile(r"[$€£](\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class StoryProblem:
    """A story, the numbers in it, named a, b, c and so on, and the expression of them that is the answer.

    `also` are expressions of other quantities that the story is about, such as the other of two unknowns.
    """

    text: str
    numbers: tuple[Fraction, ...]
    solution: str
    also: tuple[str, ...] = ()

    @classmethod
    def read(cls, text: str, numbers: Sequence[object], solution: str, also: Sequence[str] = ()) -> Self:
        """Return a problem from what files and questions hold.

        Raises:
            ValueError: A number is none, or an expression cannot be computed.
        """
        problem = cls(text, tuple(Fraction(str(number)) for number in numbers), solution, tuple(also))
        try:
            _ = problem.answer
        except ArithmeticError as error:
            raise ValueError(f"solution: expected an expression of the numbers, got {solution!r}.") from error
        return problem

    @cached_property
    def letters(self) -> dict[str, Quantity]:
        """The story's numbers by their names."""
        return {NAMES[index]: Quantity(value, RESIDUES[index]) for index, value in enumerate(self.numbers)}

    @cached_property
    def answer(self) -> Quantity:
        """The answer and its computation."""
        return as_quantity(parse_formula(self.solution), self.letters)

    @cached_property
    def unknowns(self) -> tuple[Quantity, ...]:
        """What letters in a chain of thought may stand for: the answer, other quantities, and steps to the answer."""
        also = [as_quantity(parse_formula(item), self.letters) for item in self.also]
        nodes = [as_quantity(item, self.letters) for item in _nodes(parse_formula(self.solution))]
        return tuple(dict.fromkeys((self.answer, *also, *nodes)))

    @cached_property
    def given(self) -> dict[Fraction, frozenset[int]]:
        """Numbers that a step may use without computing them, with their fingerprints: the story's and its units'."""
        quantities = [*self.letters.values(), *_derived(self.letters.values(), self.text)]
        quantities += [constant(number) for number in _EVERYWHERE]
        quantities += [
            constant(number) for source in (self.solution, *self.also) for number in numbers_of(parse_formula(source))
        ]
        if _TIMES.search(self.text):
            quantities += self._counted()
        quantities += [constant(number) for number, unit in _UNIT_CONSTANTS if unit.search(self.text)]
        return _by_value(quantities)

    @cached_property
    def meaningful(self) -> dict[Fraction, frozenset[int]]:
        """Everything on some way to the answer or to another quantity: parts of sums and of products, both signs."""
        quantities: list[Quantity] = []
        for source in (self.solution, *self.also):
            for node in _nodes(parse_formula(source)):
                terms = _expand(node, self.letters)[:MAX_TERMS]
                quantities += [*_partial_sums(terms), *_shared_factors(terms)]
        quantities += [combine("*", item, unit) for item in quantities for unit in self._units()]
        return _by_value([*quantities, *self._counted(), *self.letters.values()])

    def _units(self) -> list[Quantity]:
        """Return how many small units a large one has, of money and of what else the story measures."""
        units = [constant(number) for number, unit in _UNIT_CONSTANTS if unit.search(self.text)]
        return [constant(100), *units] if any(sign in self.text for sign in MONEY_SIGNS) else units

    def _counted(self) -> list[Quantity]:
        """Return small numbers one more and one less: three times as many are four parts in all."""
        small = [item for item in self.letters.values() if item.value <= COUNTED_ONE_MORE]
        return [combine(operator, item, constant(1)) for item in small for operator in "+-"]

    @cached_property
    def meaningful_fingerprints(self) -> frozenset[int]:
        """The fingerprints of all that is meaningful."""
        return frozenset().union(*self.meaningful.values())


def _nodes(expression: Expression) -> Iterator[Expression]:
    if isinstance(expression, Binary):
        yield from _nodes(expression.left)
        yield from _nodes(expression.right)
        yield expression


def _derived(numbers: Iterable[Quantity], text: str) -> Iterator[Quantity]:
    """Yield other ways to write the story's numbers: 25% as 0.25, a quarter as 4, $2.50 as 250 cents."""
    one, hundred = constant(1), constant(100)
    percentages = {Fraction(written) for written in _PERCENTAGE.findall(text)}
    prices = {Fraction(written) for written in _PRICE.findall(text)}
    for number in numbers:
        inverse = combine("/", one, number) if number.value else number
        yield inverse
        if number.value in percentages:
            share = combine("/", number, hundred)
            rest, more = combine("-", one, share), combine("+", one, share)
            yield from (share, rest, more, combine("*", rest, hundred), combine("*", more, hundred))
        if 0 < number.value < 1:
            rest = combine("-", one, number)
            yield from (rest, combine("*", rest, inverse))
        if number.value in prices:
            yield combine("*", number, hundred)


def _expand(node: Expression, letters: dict[str, Quantity]) -> list[tuple[Quantity, ...]]:
    """Return the node as a sum of products; a divisor that is a sum stays one factor."""
    if not isinstance(node, Binary):
        return [(letters[node.name],)] if isinstance(node, Letter) else [(constant(node.value),)]
    left, right = _expand(node.left, letters), _expand(node.right, letters)
    match node.operator:
        case "+":
            return left + right
        case "-":
            return left + [(constant(-1), *term) for term in right]
        case "*":
            return [(*first, *second) for first in left for second in right]
        case _:
            one = constant(1)
            factors = right[0] if len(right) == 1 else (as_quantity(node.right, letters),)
            inverses = tuple(combine("/", one, factor) for factor in factors)
            return [(*term, *inverses) for term in left]


def _partial_sums(terms: list[tuple[Quantity, ...]]) -> Iterator[Quantity]:
    for term in terms:
        for size in range(1, min(len(term), MAX_FACTORS) + 1):
            for factors in combinations(term[:MAX_FACTORS], size):
                yield from _both_signs(_product(factors))
    wholes = [_product(term) for term in terms]
    for size in range(2, len(wholes) + 1):
        for chosen in combinations(wholes, size):
            total = constant(0)
            for item in chosen:
                total = combine("+", total, item)
            yield from _both_signs(total)


def _shared_factors(terms: list[tuple[Quantity, ...]]) -> Iterator[Quantity]:
    """Yield what two terms with a common factor have besides it, added: b + c of a*b + a*c."""
    for first, second in combinations(terms, 2):
        common = set(first) & set(second) - {constant(-1)}
        if common:
            rests = [_product([factor for factor in term if factor not in common]) for term in (first, second)]
            yield from _both_signs(combine("+", *rests))


def _product(factors: Sequence[Quantity]) -> Quantity:
    result = constant(1)
    for factor in factors:
        result = combine("*", result, factor)
    return result


def _both_signs(quantity: Quantity) -> tuple[Quantity, Quantity]:
    return quantity, combine("-", constant(0), quantity)


def _by_value(quantities: Sequence[Quantity]) -> dict[Fraction, frozenset[int]]:
    by_value: dict[Fraction, set[int]] = {}
    for quantity in quantities:
        by_value.setdefault(quantity.value, set()).add(quantity.fingerprint)
    return {value: frozenset(fingerprints) for value, fingerprints in by_value.items()}
