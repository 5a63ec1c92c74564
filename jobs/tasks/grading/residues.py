r"""Integers modulo another one, such as `x \equiv 3 \pmod 7`, and numbers in a base, such as `101_2`.

Math-Verify reads the modulus of the first and leaves out the base of the second.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import gcd, lcm

from exgrpo.jobs.tasks.grading.plain_text import SPACING, TEXT_COMMAND

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
_NUMBER = r"(?:\d[\dA-Fa-f]*(?:\.[\dA-Fa-f]+)?|[A-F][\dA-F]+)"
_NUMERAL = re.compile(
    rf"(?<![\w.\\^])(?P<digits>\\(?:text|mathrm|mathtt)\s*\{{\(?{_NUMBER}\)?\}}|\({_NUMBER}\)|\{{{_NUMBER}\}}|{_NUMBER})"
    r"(?P<base>\s*_\s*(?:\{[^{}]*(?:\{[^{}]*\}[^{}]*)?\}|\\text\s*\{[^{}]*\}|\(\d+\)|\d+)"
    r"|[\s~]*(?:\\(?:text|mathrm)\s*\{[^{}]*\bbase\b[^{}]*\}(?:\s*\d+)?|\(\s*(?:in\s+)?base[\s~]*\w+\s*\)"
    r"|(?:in\s+)?base[\s~]*\w+))"
)
_AROUND_BASE = re.compile(r"\\(?:text|mathrm)|\b(?:in|base)(?![a-z])|[_{}()\s~]")
_MODULUS = re.compile(
    r"\(?\s*(?:\\(?:pmod|bmod|mod|pod)(?![a-z])|\bmod\b)\s*"
    r"(?:\{(?P<braced>[^{}]*)\}|(?P<bare>\w+))\s*\)?"
)
_JOINT = re.compile(r"([,;]|\b(?:and|or)\b|\\(?:lor|land)(?![a-z]))")
_NOT = re.compile(r"\\not\s*|\\n(?=equiv)|(?=≢)")
_SUBJECT = re.compile(r"^(?P<subject>[^=≡≢]*?)\s*(?:=|≡|≢|\\equiv(?![a-z]))\s*")
_MULTIPLES = re.compile(r"(?:(-?\d+)\s*\+\s*)?(\d+)\s*(?:\\cdot\s*)?[a-z](?:\s*([+-]\s*\d+))?(?:,.*\\in.*|\\in.*)?")


def with_decimal_numerals(text: str) -> str:
    """Return the text with each number in a base as a number in base ten; one with other digits is a symbol."""
    return _NUMERAL.sub(_as_decimal, text)


def _as_decimal(match: re.Match[str]) -> str:
    name = _AROUND_BASE.sub("", match["base"])
    base = int(name) if name.isdecimal() else _BASES.get(name, 0)
    digits = re.sub(r"\\[a-z]+|[{}()\s]", "", match["digits"])
    # 2a_{12} is twice a twelfth term, unless the digits stand in a text or the base is called one.
    is_product = digits == match["digits"] and match["base"].strip(" _{}").isdecimal() and digits[-1] in "abcdef"
    is_after_sign = match.string[: match.start()].rstrip().endswith(("^", "_"))
    is_hexadecimal = base == 16 and re.fullmatch(r"\d+[a-f]", digits) is None
    if not 2 <= base <= 36 or is_after_sign or (is_product and not is_hexadecimal) or (digits[0] > "9" and base != 16):
        return match[0]
    whole, _, rest = digits.partition(".")
    try:
        value = Fraction(int(whole + rest, base), base ** len(rest))
    except ValueError:
        return rf"\omega_{{{base}{whole}{rest}}}" if (whole + rest).isdecimal() else match[0]
    return str(value) if value.denominator == 1 else rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def are_same_numerals(gold: str, answer: str) -> bool:
    """Return whether two answers are one number in a base, whose digits are small letters in one of them."""
    return gold.upper() == answer.upper() and _NUMERAL.fullmatch(gold.upper()) is not None


@dataclass(frozen=True, slots=True)
class _Residues:
    """The statement that a subject is one of several residues, each with its modulus."""

    subject: str
    is_denied: bool
    systems: list[dict[str, list[str]]]
    """Alternatives that each hold at once: values by modulus."""

    @property
    def values(self) -> list[tuple[str, str]]:
        """Values and moduli as they are written."""
        return [(value, modulus) for system in self.systems for modulus, values in system.items() for value in values]

    def numbers(self) -> list[tuple[int, int]] | None:
        """Return residues and moduli, each an alternative, if all are integers."""
        try:
            return [pair for system in self.systems for pair in _solve(system)]
        except ValueError:
            return None


def _solve(system: dict[str, list[str]]) -> list[tuple[int, int]]:
    """Return the residues that hold for all moduli at once; if there are none, the system is a list of answers."""
    read = [
        [(_read_integer(value.replace(" ", ""), int(modulus)), int(modulus)) for value in values]
        for modulus, values in system.items()
    ]
    solved = [(0, 1)] if len(read) > 1 else read[0]
    for pairs in read if len(read) > 1 else ():
        if len(solved) * len(pairs) > _MAX_EXPANDED:
            raise ValueError(len(solved) * len(pairs))
        solved = [joint for pair in product(solved, pairs) if (joint := _intersection(*pair))]
    return solved or [pair for pairs in read for pair in pairs]


def _intersection(left: tuple[int, int], right: tuple[int, int]) -> tuple[int, int] | None:
    """Return the residue that two residues have in common (Chinese remainder theorem), None if there is none."""
    (value, modulus), (other, other_modulus) = left, right
    shared = gcd(modulus, other_modulus)
    if (other - value) % shared:
        return None
    steps = (other - value) // shared * pow(modulus // shared, -1, other_modulus // shared)
    common = lcm(modulus, other_modulus)
    return (value + modulus * steps) % common, common


def _read_integer(text: str, modulus: int) -> int:
    """Return an integer, a power as its residue; a `ValueError` of any other text."""
    power = re.fullmatch(r"(-?\d+)\^\{?(-?\d+)\}?", text)
    if modulus < 1:
        raise ValueError(modulus)
    return int(text) if power is None else pow(int(power[1]), int(power[2]), modulus)


def compare_residues(gold: str, answer: str, is_same: Callable[[str, str], bool]) -> bool | None:
    """Return whether two answers name the same residues; None if neither has a modulus that can be read."""
    gold, answer = (_without_layout(text).strip().removesuffix(".") for text in (gold, answer))
    left, right = _read(gold), _read(answer)
    if left is not None and right is not None:
        return _are_equal(left, right, is_same)
    if left is not None:
        return _is_value(left, answer, is_same)
    return None if right is None else _is_value(right, gold, is_same)


def _without_layout(text: str) -> str:
    return re.sub(rf"{SPACING}|[$]", " ", re.sub(TEXT_COMMAND, r" \1 ", text))


def _are_equal(left: _Residues, right: _Residues, is_same: Callable[[str, str], bool]) -> bool:
    if left.is_denied != right.is_denied or not _are_like(left.subject, right.subject):
        return False
    numbers = left.numbers(), right.numbers()
    if numbers[0] is not None and numbers[1] is not None:
        least = [{(value % modulus, modulus) for value, modulus in pairs} for pairs in numbers if pairs]
        common = lcm(*(modulus for _, modulus in numbers[0] + numbers[1]))
        expanded = [_expand(pairs, common) for pairs in (numbers[0], numbers[1])]
        return least[0] == least[1] or (expanded[0] is not None and expanded[0] == expanded[1])
    if any(len(system) > 1 for system in left.systems) != any(len(system) > 1 for system in right.systems):
        return False
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
    are_joint = numbers and any(len(system) > 1 for system in residues.systems)
    values = [str(value) for value, _ in numbers or ()] if are_joint else [value for value, _ in residues.values]
    return is_same(", ".join(values), bare)


def _read(text: str) -> _Residues | None:
    """Return what a text with a modulus states, None of any other text."""
    if not _MODULUS.search(text):
        return None
    is_denied = _NOT.search(text) is not None
    text = _NOT.sub(r"\\" if r"\nequiv" in text else "", text)
    waiting: list[str] = []
    clauses: list[tuple[str, str, list[str]]] = []
    subjects: set[str] = set()
    joint = link = ""
    parts = _JOINT.split(text)
    for sign, part in zip(["", *parts[1::2]], map(str.strip, parts[::2]), strict=True):
        joint += sign
        if not part:
            continue
        modulus = _MODULUS.search(part)
        if modulus is not None and part[modulus.end() :].strip(" )}"):
            return None
        value = (part[: modulus.start()] if modulus else part).strip(" {(")
        subject = _SUBJECT.match(value)
        subjects |= {subject["subject"].strip()} if subject else set()
        value = _SUBJECT.sub("", value).strip()
        signed = re.fullmatch(r"(?:\\pm|\\mp|±)\s*(.+)", value)
        link, joint = link if waiting else joint, ""
        waiting += [signed[1], f"-{signed[1]}"] if signed else [value]
        if modulus is not None:
            clauses.append((link, (modulus["braced"] or modulus["bare"]).strip(), waiting))
            waiting = []
    if not clauses or waiting or len(subjects) > 1 or not all(all(values) for _, _, values in clauses):
        return None
    return _Residues(next(iter(subjects), ""), is_denied, _systems(clauses, is_denied))


def _systems(clauses: list[tuple[str, str, list[str]]], is_denied: bool) -> list[dict[str, list[str]]]:
    """Return the alternatives of clauses: `or` separates them, and so does a comma if `and` occurs nowhere.

    What is denied of both is denied of either: `and` separates the alternatives that are denied.
    """
    links = [link for link, _, _ in clauses[1:]]
    has_and, has_or = any("and" in link for link in links), any("or" in link for link in links)
    systems: list[dict[str, list[str]]] = [{}]
    for place, (link, modulus, values) in enumerate(clauses):
        is_other = "or" not in link if is_denied else "or" in link or (has_or and not has_and)
        if place and is_other:
            systems.append({})
        systems[-1].setdefault(modulus, []).extend(values)
    return systems
