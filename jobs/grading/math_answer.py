"""Mathematical answers that can be decided without Math-Verify: equal texts and plain numbers."""

import re
from fractions import Fraction

from jobs.grading.outcomes import Outcome

_INVISIBLE = re.compile(r"\\[,!]|\\(?:left|right)(?![A-Za-z])|\$")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:(?:,|\{,\})\d{3})+")
_NUMBER = re.compile(r"[+-]?\d{1,400}(?:\.\d{0,400})?")


def grade_without_verifier(gold: str, boxed: str) -> Outcome | None:
    """Return the outcome where texts are equal or both are plain numbers, else None: Math-Verify has to decide."""
    if not boxed.strip():
        return Outcome.UNPARSED
    left, right = _normalize(gold), _normalize(boxed)
    if left == right:
        return Outcome.CORRECT
    gold_number, number = _read_number(gold), _read_number(boxed)
    if gold_number is None or number is None:
        return None
    if gold_number == number:
        return Outcome.CORRECT
    are_whole = gold_number.denominator == 1 and number.denominator == 1
    return Outcome.WRONG if are_whole else None


def _normalize(text: str) -> str:
    # A space between digits stays: 3 1/2 is not 31/2.
    bare = _SPACE.sub("", _INVISIBLE.sub("", text)).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return bare.removesuffix(".")


def _read_number(text: str) -> Fraction | None:
    # A space behind a comma stays: 32, 349 is not 32,349.
    bare = _INVISIBLE.sub("", text).strip()
    plain = bare.replace("{,}", "").replace(",", "") if _THOUSANDS.fullmatch(bare.removesuffix(".")) else bare
    return Fraction(plain.removesuffix(".")) if _NUMBER.fullmatch(plain) else None
