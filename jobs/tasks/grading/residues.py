r"""Integers modulo another one, such as `x \equiv 3 \pmod 7`, and numbers in a base, such as `101_2`.

Math-Verify reads the modulus of the first and leaves out the base of the second.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from math import lcm

_MAX_EXPANDED = 10_000
"""Most residues that are listed to compare those of two moduli."""
_BASES = {
    name: base
    for base, names in {
        2: "two binary", 3: "three ternary", 4: "four", 5: "five", 6: "six", 7: "seven", 8: "eight octal oct",
        9: "nine", 10: "ten decimal dec", 12: "twelve", 16: "sixteen hexadecimal hex",
    }.items()
    for name in names.split()
}  # fmt: skip
_DIGITS = (
    r"(?<![\w.\\])(?:\\(?:text|mathrm|mathtt)\s*\{)?\(?(?P<digits>\d[\dA-Fa-f]*(?:\.[\dA-Fa-f]+)?|[A-F]{2,})\)?\}?"
)
_TEXT = r"(?:\\(?:text|mathrm)\s*\{\s*)?\(?\s*"
_NUMERAL = re.compile(
    rf"{_DIGITS}(?:\s*_\s*\{{?\s*{_TEXT}(?:base[\s~]*)?(?P<base>\d+|[a-z]{{3,11}})\s*\)?\}}{{0,2}}"
    rf"|[\s~]*{_TEXT}(?:in\s+)?base[\s~]*\}}?\s*(?P<word>\d+|[a-z]{{3,11}})\s*\)?\}}?)"
)
_MODULUS = re.compile(
    r"\(?\s*(?:\\(?:pmod|bmod|mod|pod)(?![a-z])|\bmod\b)\s*"
    r"(?:\{(?P<braced>[^{}]*)\}|(?P<bare>\w+))\s*\)?"
)
_SPACES = re.compile(r"\\[,;:! ]|~|\\q?quad(?![a-z])|\\(?:left|right)(?![a-z])|[$]")
_WORDS = re.compile(r"\\(?:text|textrm|mathrm|mbox|operatorname)\s*\{([^{}]*)\}")
_JOINT = re.compile(r"[,;]|\b(?:and|or)\b|\\(?:lor|land)(?![a-z])")
_NOT = re.compile(r"\\not\s*|\\n(?=equiv)|(?=≢)")
_SUBJECT = re.compile(r"^(?P<subject>[^=≡≢]*?)\s*(?:=|≡|≢|\\equiv(?![a-z]))\s*")
_MULTIPLES = re.compile(r"(?:(-?\d+)\s*\+\s*)?(\d+)\s*(?:\\cdot\s*)?[a-z](?:\s*([+-]\s*\d+))?(?:,.*\\in.*|\\in.*)?")


def with_decimal_numerals(text: str) -> str:
    """Return the text with each number in a base as a number in base ten; one with other digits is a symbol."""
    return _NUMERAL.sub(_as_decimal, text)


def _as_decimal(match: re.Match[str]) -> str:
    name = match["base"] or match["word"]
    base = int(name) if name.isdecimal() else _BASES.get(name, 0)
    if not 2 <= base <= 36 or (not any(map(str.isdecimal, match["digits"])) and base < 16):
        return match[0]
    whole, _, rest = match["digits"].partition(".")
    try:
        value = Fraction(int(whole + rest, base), base ** len(rest))
    except ValueError:
        return rf"\omega_{{{base}{whole}{rest}}}"
    return str(value) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


@dataclass(frozen=True, slots=True)
class _Residues:
    """The statement that a subject is one of several residues, each with its modulus."""

    subject: str
    is_denied: bool
    values: list[tuple[str, str]]

    def numbers(self) -> list[tuple[int, int]] | None:
        """Return residues and moduli if all are integers."""
        try:
            return [
                (_read_integer(value.replace(" ", ""), int(modulus)), int(modulus)) for value, modulus in self.values
            ]
        except ValueError:
            return None


def _read_integer(text: str, modulus: int) -> int:
    """Return an integer, a power as its residue.

    Raises:
        ValueError: The text is neither, or the modulus is zero.
    """
    power = re.fullmatch(r"(-?\d+)\^\{?(-?\d+)\}?", text)
    if modulus < 1:
        raise ValueError(modulus)
    return int(text) if power is None else pow(int(power[1]), int(power[2]), modulus)


def compare_residues(gold: str, answer: str, is_same: Callable[[str, str], bool]) -> bool | None:
    """Return whether two answers name the same residues; None if neither has a modulus that can be read."""
    gold, answer = (_SPACES.sub(" ", _WORDS.sub(r" \1 ", text)).strip().removesuffix(".") for text in (gold, answer))
    left, right = _read(gold), _read(answer)
    if left is not None and right is not None:
        return _are_equal(left, right, is_same)
    if left is not None:
        return _is_value(left, answer, is_same)
    return None if right is None else _is_value(right, gold, is_same)


def _are_equal(left: _Residues, right: _Residues, is_same: Callable[[str, str], bool]) -> bool:
    if left.is_denied != right.is_denied or not _are_like(left.subject, right.subject):
        return False
    numbers = left.numbers(), right.numbers()
    if numbers[0] is not None and numbers[1] is not None:
        common = lcm(*(modulus for _, modulus in numbers[0] + numbers[1]))
        expanded = [_expand(pairs, common) for pairs in (numbers[0], numbers[1])]
        return expanded[0] is not None and expanded[0] == expanded[1]
    rows = [[all(map(is_same, one, other)) for other in right.values] for one in left.values]
    return all(map(any, rows)) and all(map(any, zip(*rows, strict=True)))


def _are_like(subject: str, other: str) -> bool:
    is_name = re.compile(r"[A-Za-z](?:_\w)?")
    return not subject or not other or subject == other or all(map(is_name.fullmatch, (subject, other)))


def _expand(pairs: list[tuple[int, int]], common: int) -> set[int] | None:
    if sum(common // modulus for _, modulus in pairs) > _MAX_EXPANDED:
        return None
    return {place for value, modulus in pairs for place in range(value % modulus, common, modulus)}


def _is_value(residues: _Residues, other: str, is_same: Callable[[str, str], bool]) -> bool:
    """Return whether an answer without a modulus names the residues as they are written, or all of their numbers."""
    subject, bare = _SUBJECT.match(other), _SUBJECT.sub("", other)
    numbers = residues.numbers()
    multiples = _MULTIPLES.fullmatch(bare)
    if residues.is_denied:
        return False
    if numbers and multiples:
        shift, factor = int((multiples[1] or multiples[3] or "0").replace(" ", "")), int(multiples[2])
        common = lcm(factor, *(modulus for _, modulus in numbers))
        expanded = _expand(numbers, common)
        return factor > 0 and expanded is not None and expanded == _expand([(shift, factor)], common)
    if numbers and len(numbers) == 1 and not residues.subject and not subject:
        # An operation has one value, the least residue: 17 mod 5 is 2.
        value, modulus = numbers[0]
        return is_same(str(value % modulus), bare) or is_same(str(value), bare)
    return is_same(", ".join(value for value, _ in residues.values), bare)


def _read(text: str) -> _Residues | None:
    """Return what a text with a modulus states, None of any other text."""
    if not _MODULUS.search(text):
        return None
    is_denied = _NOT.search(text) is not None
    text = _NOT.sub(r"\\" if r"\nequiv" in text else "", text)
    waiting: list[str] = []
    values: list[tuple[str, str]] = []
    subjects: set[str] = set()
    for part in filter(None, map(str.strip, _JOINT.split(text))):
        modulus = _MODULUS.search(part)
        if modulus is not None and part[modulus.end() :].strip(" )}"):
            return None
        value = (part[: modulus.start()] if modulus else part).strip(" {(")
        subject = _SUBJECT.match(value)
        subjects |= {subject["subject"].strip()} if subject else set()
        value = _SUBJECT.sub("", value)
        signed = re.fullmatch(r"(?:\\pm|\\mp|±)\s*(.+)", value)
        waiting += [signed[1], f"-{signed[1]}"] if signed else [value]
        if modulus is not None:
            named = (modulus["braced"] or modulus["bare"]).strip()
            values += [(value.strip(), named) for value in waiting]
            waiting = []
    if not values or waiting or len(subjects) > 1 or not all(value for value, _ in values):
        return None
    return _Residues(next(iter(subjects), ""), is_denied, values)
