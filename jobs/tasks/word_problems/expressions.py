"""Arithmetic expressions: built from tokens, evaluated as numbers and as the computations that they may stand for.

A number remembers how it was computed by a fingerprint: the same computation modulo a large prime with a random residue
in place of each number of the story. Two computations have equal fingerprints exactly if they agree for any numbers of
the story, but for one chance in 2^61 (identity testing after Schwartz and Zippel).
"""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from operator import add, mul, sub, truediv
from typing import NamedTuple

from exgrpo.jobs.tasks.word_problems.tokens import Kind, Token

PRIME = 2**61 - 1
MAX_NUMBERS = 26
MAX_BITS = 256
MAX_TOKENS = 60
MAX_READINGS = 512
"""Computations that an expression may be: a 5 in it may be either of two fives of a story."""
_PRECEDENCE = {"+": 1, "-": 1, "*": 2, "/": 2, "implicit": 3, "negative": 4}
Lookup = Callable[[Fraction], frozenset[int]]
MAX_DIGITS = 15
_PIECE = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>//|[-+*/()]))")
_BRACKETS = {"(": Kind.OPEN, ")": Kind.CLOSE}

_EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {"+": add, "-": sub, "*": mul, "/": truediv}
_MODULAR: dict[str, Callable[[int, int], int]] = {"+": add, "-": sub, "*": mul}
RESIDUES = tuple(random.Random(PRIME).sample(range(2**60, PRIME), MAX_NUMBERS))


class NotComputableError(ArithmeticError):
    """A division by 0, or a number of more bits than any story needs."""


class Quantity(NamedTuple):
    """A number and the fingerprint of its computation."""

    value: Fraction
    fingerprint: int


def constant(value: Fraction | int) -> Quantity:
    """Return a number that is the same in every story."""
    exact = Fraction(value)
    return Quantity(exact, exact.numerator * pow(exact.denominator, -1, PRIME) % PRIME)


def combine(operator: str, left: Quantity, right: Quantity) -> Quantity:
    """Return `left operator right` for one of + - * and /.

    Raises:
        NotComputableError: The result is not a number or too large.
    """
    return Quantity(
        combine_values(operator, left.value, right.value),
        combine_fingerprints(operator, left.fingerprint, right.fingerprint),
    )


def combine_values(operator: str, left: Fraction, right: Fraction) -> Fraction:
    """Return the value of `left operator right`.

    Raises:
        NotComputableError: The result is not a number or too large.
    """
    if operator == "/" and right == 0:
        raise NotComputableError("division by 0")
    result = _EXACT[operator](left, right)
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
        raise NotComputableError("too large")
    return result


def combine_fingerprints(operator: str, left: int, right: int) -> int:
    """Return the fingerprint of `left operator right`; dividing by a fingerprint of 0 gives 0."""
    if operator == "/":
        return left * pow(right, -1, PRIME) % PRIME if right else 0
    return _MODULAR[operator](left, right) % PRIME


class MalformedError(ValueError):
    """The tokens are no expression."""


@dataclass(frozen=True, slots=True)
class Number:
    """A number as written."""

    value: Fraction
    is_share: bool = False


@dataclass(frozen=True, slots=True)
class Letter:
    """An unknown, or a name in code."""

    name: str


@dataclass(frozen=True, slots=True)
class Binary:
    """Two expressions and one of + - * / between them."""

    operator: str
    left: "Expression"
    right: "Expression"


Expression = Number | Letter | Binary


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of an expression, the computations that it may be, and its numbers that come from nowhere."""

    value: Fraction
    fingerprints: frozenset[int]
    missing: tuple[Fraction, ...] = ()


Letters = dict[str, Reading]


def parse_expression(tokens: Sequence[Token]) -> Expression:
    """Return the expression that numbers, letters, operators and brackets make, without recursion.

    Raises:
        MalformedError: They make none, or are too many.
    """
    if not 1 <= len(tokens) <= MAX_TOKENS:
        raise MalformedError
    operands: list[Expression] = []
    waiting: list[str] = []
    for token in tokens:
        match token.kind:
            case Kind.NUMBER:
                operands.append(Number(token.value, token.is_share))
            case Kind.LETTER:
                operands.append(Letter(token.text))
            case Kind.OPEN:
                waiting.append("(")
            case Kind.CLOSE:
                _reduce(operands, waiting, 0)
                if not waiting:
                    raise MalformedError
                waiting.pop()
            case _:
                # A sign before its number waits for it; signs between numbers first let what binds as strongly go.
                if token.text != "negative":
                    _reduce(operands, waiting, _PRECEDENCE[token.text])
                waiting.append(token.text)
    _reduce(operands, waiting, 0)
    if waiting or len(operands) != 1:
        raise MalformedError
    return operands[0]


def _reduce(operands: list[Expression], waiting: list[str], precedence: int) -> None:
    while waiting and waiting[-1] != "(" and _PRECEDENCE[waiting[-1]] >= precedence:
        operator = waiting.pop()
        if len(operands) < (1 if operator == "negative" else 2):
            raise MalformedError
        right = operands.pop()
        if operator == "negative":
            operands.append(Binary("-", Number(Fraction(0)), right))
        else:
            operands.append(Binary("*" if operator == "implicit" else operator, operands.pop(), right))


def letters_of(expression: Expression) -> frozenset[str]:
    """Return the names of the letters in an expression."""
    match expression:
        case Letter(name):
            return frozenset({name})
        case Binary(_, left, right):
            return letters_of(left) | letters_of(right)
        case _:
            return frozenset()


def numbers_of(expression: Expression) -> Iterator[Fraction]:
    """Yield the numbers of an expression as written, from left to right."""
    match expression:
        case Number(value):
            yield value
        case Binary(_, left, right):
            yield from numbers_of(left)
            yield from numbers_of(right)


def leading_number(expression: Expression) -> Fraction | None:
    """Return the number that an expression begins with, None if that is a letter."""
    while isinstance(expression, Binary):
        expression = expression.left
    return expression.value if isinstance(expression, Number) else None


def evaluate(expression: Expression, lookup: Lookup, letters: Letters) -> Reading:
    """Return the reading of an expression; `lookup` gives the known computations of a number, none if it is unknown.

    Raises:
        NotComputableError: It divides by 0, is too large, or has a letter without a value.
    """
    match expression:
        case Number(value, is_share):
            known = lookup(value) or (_share(value, lookup) if is_share else frozenset())
            return Reading(value, known, () if known else (value,))
        case Letter(name):
            if name not in letters:
                raise NotComputableError(name)
            return letters[name]
        case Binary(operator, left, right):
            first, second = evaluate(left, lookup, letters), evaluate(right, lookup, letters)
            value = combine_values(operator, first.value, second.value)
            fingerprints = combine_all(operator, first.fingerprints, second.fingerprints)
            missing = (*first.missing, *second.missing)
            is_share = operator == "/" and isinstance(left, Number) and isinstance(right, Number) and 0 < value < 1
            if is_share:
                # 2/3 may be what a third of the story leaves.
                as_whole = lookup(value)
                return Reading(value, fingerprints | as_whole, () if as_whole else missing)
            return Reading(value, fingerprints, missing)


def _share(value: Fraction, lookup: Lookup) -> frozenset[int]:
    """Return the computations of half as 1/2 and of 35% as 35/100."""
    for whole in (value.denominator, 100):
        part = combine_all("/", lookup(value * whole), lookup(Fraction(whole)))
        if part:
            return part
    return frozenset()


def combine_all(operator: str, left: frozenset[int], right: frozenset[int]) -> frozenset[int]:
    """Return the fingerprints of `left operator right` for every reading of both, up to `MAX_READINGS`."""
    pairs = product(sorted(left), sorted(right))
    return frozenset(combine_fingerprints(operator, *pair) for pair, _ in zip(pairs, range(MAX_READINGS), strict=False))


def as_quantity(expression: Expression, letters: dict[str, Quantity]) -> Quantity:
    """Return the quantity of an expression whose letters are numbers of a story."""
    readings = {name: Reading(item.value, frozenset({item.fingerprint})) for name, item in letters.items()}
    reading = evaluate(expression, constant_reading, readings)
    return Quantity(reading.value, next(iter(reading.fingerprints)))


def constant_reading(value: Fraction) -> frozenset[int]:
    """Return the fingerprint of a number that is the same in every story."""
    return frozenset({value.numerator * pow(value.denominator, -1, PRIME) % PRIME})


def parse_formula(text: str) -> Expression:
    """Return the expression that `text` writes.

    Raises:
        MalformedError: It writes none.
    """
    text = text.rstrip()
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None or len(match[0]) > MAX_DIGITS + 5:
            raise MalformedError
        position = match.end()
        piece = match[match.lastgroup or "sign"]
        if match.lastgroup == "number":
            tokens.append(Token(Kind.NUMBER, piece, match.start(), position, Fraction(piece)))
        elif match.lastgroup == "name":
            tokens.append(Token(Kind.LETTER, piece, match.start(), position))
        elif piece in _BRACKETS:
            tokens.append(Token(_BRACKETS[piece], piece, match.start(), position))
        else:
            is_sign = piece == "-" and (not tokens or tokens[-1].kind in {Kind.OPERATOR, Kind.OPEN})
            sign = "negative" if is_sign else piece[0]
            tokens.append(Token(Kind.OPERATOR, sign, match.start(), position))
    return parse_expression(tokens)
