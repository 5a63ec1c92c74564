"""Numbers that remember how they were computed.

A fingerprint is the same computation modulo a large prime with a random residue in place of each number of the story.
Two computations have equal fingerprints exactly if they agree for any numbers of the story, but for one chance in 2^61
(identity testing after Schwartz and Zippel).
"""

import random
from fractions import Fraction
from typing import NamedTuple

PRIME = 2**61 - 1
MAX_NUMBERS = 26
MAX_BITS = 256

_RESIDUES = tuple(random.Random(PRIME).sample(range(2**60, PRIME), MAX_NUMBERS))


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


def story_number(index: int, value: Fraction) -> Quantity:
    """Return the story's number at `index`, from 0 to 25."""
    return Quantity(value, _RESIDUES[index])


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
    match operator:
        case "+":
            result = left + right
        case "-":
            result = left - right
        case "*":
            result = left * right
        case _:
            result = left / right
    if max(result.numerator.bit_length(), result.denominator.bit_length()) > MAX_BITS:
        raise NotComputableError("too large")
    return result


def combine_fingerprints(operator: str, left: int, right: int) -> int:
    """Return the fingerprint of `left operator right`; dividing by a fingerprint of 0 gives 0."""
    match operator:
        case "+":
            return (left + right) % PRIME
        case "-":
            return (left - right) % PRIME
        case "*":
            return left * right % PRIME
        case _:
            return left * pow(right, -1, PRIME) % PRIME if right else 0
