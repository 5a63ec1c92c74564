r"""Quantities: answers that name a unit, such as `12 \text{ cm}^2`, `\$5 \text{ per hour}` or `5 km north`.

Two quantities are compared after conversion to one unit. Units of another kind, such as cm and cm^2, make them differ.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache
from itertools import pairwise, product, takewhile
from pathlib import Path
from typing import cast

import yaml

from exgrpo.jobs.tasks.grading.plain_text import COMMA, MARKS, PLAIN, apply_steps, plain_words, with_mixed_numbers

_MAX_NAMES = 6
"""Units in one product, and quantities in one sum: each may have several meanings."""
_FILE = Path(__file__).parent / "units.yaml"
_PREFIXES = {
    "f femto": -15, "p pico": -12, "n nano": -9, "µ u micro": -6, "m milli": -3, "c centi": -2, "d deci": -1,
    "da deca": 1, "h hecto": 2, "k kilo": 3, "M mega": 6, "G giga": 9, "T tera": 12, "P peta": 15,
}  # fmt: skip
_NAMED = re.compile(
    r"(?P<value>.*\S)\s*\\(?:text|textrm|mathrm|mbox)\s*\{(?P<unit>[^{}]*)\}(?P<power>\s*\^\s*\{?\d\}?)?", re.DOTALL
)
_UNIT_PLAIN = (
    (r"\bper\b|(?<=[a-z$€£])\s+(?:an?|each|every)\b", "/"),
    (r"\\cdot|\\times|[*·()]|\band\b", " "),
    (r"\b(?:square|sq)\s+([^\W\d]+)|\b([^\W\d]+)\s+squared", r"\1\2^2"),
    (r"\b(?:cubic|cu)\s+([^\W\d]+)|\b([^\W\d]+)\s+cubed", r"\1\2^3"),
    (r"\bdeg(?:rees?)?\s*(?:C\b|[Cc]elsius|[Cc]entigrade)", "degC"),
    (r"\bdeg(?:rees?)?\s*(?:F\b|[Ff]ahrenheit)", "degF"),
)
_PART = re.compile(
    r"[\s,]*+(?P<value>[-+]?\s*+(?:\\(?:[dt]?frac|sqrt|pi|times|cdot)(?![A-Za-z])|\d[eE][-+]?\d|[\d.,\s{}()+*/^-])*+)"
    rf"(?P<unit>(?:[^\W\d_]|[{MARKS}])(?:[^\W\d_]|[{MARKS}\s/*·()]|\\cdot|\^-?\d|(?<=[a-z])-(?=[a-z])|(?<=[a-z])[23](?!\s*[\w.]))*)"
)
_PLURAL = re.compile(r"(?<=\w\w)e?s$")
_TOKEN = re.compile(rf"([^\W\d_]+|[{MARKS}])\^?(-?\d)?")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PLAIN_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")
_DECIMAL = re.compile(r"\d+\.\d+(?![eE\d])")
_PERCENT = re.compile(r"%|\bper\s?cent\b")
_DEFINITION = re.compile(r"(?P<factor>[\d.e/-]+(?=\s))?\s*(?P<unit>[^+]*?)(?:\s*\+\s*(?P<zero>[\d.]+))?")


@dataclass(frozen=True, slots=True)
class _Unit:
    """A product of base units: powers by name, times a number and a power of pi; a temperature's zero."""

    powers: frozenset[tuple[str, int]]
    factor: Fraction
    pi_power: int = 0
    zero: Fraction = Fraction(0)
    counted: frozenset[str] = field(default=frozenset(), compare=False)
    """Unknown words that are counted per unit, such as beats per minute."""

    def is_generic(self) -> bool:
        return any(name == "unit" for name, _ in self.powers)

    def kind(self) -> frozenset[tuple[str, int]]:
        """Return what has to agree with another unit; π alone is an angle."""
        return frozenset(("m" if name == "unit" else name, power) for name, power in self.powers or {("rad", 1)})

    def is_like(self, other: "_Unit") -> bool:
        """Return whether quantities in both units can be equal: beats per minute are no words per minute."""
        is_counted_alike = not (self.counted and other.counted) or not self.counted.isdisjoint(other.counted)
        return self.kind() == other.kind() and is_counted_alike


@dataclass(frozen=True, slots=True)
class _Quantity:
    value: str
    unit: _Unit


def is_unit(word: str) -> bool:
    """Return whether a word is the name of a unit."""
    return bool(_read_factor(word, 1))


def is_quantity(text: str) -> bool:
    """Return whether a text is a value with a unit."""
    return bool(_read_quantities(text))


def quantity_lists(gold: str, answer: str) -> tuple[list[str], list[str]] | None:
    """Return the items of two lists of the same length with a quantity among them, None of other answers."""
    left, right = (
        [item.strip() for item in COMMA.split(apply_steps(PLAIN, text).strip(" ()"))] for text in (gold, answer)
    )
    items = [*left, *right]
    are_lists = len(left) == len(right) > 1 and all(items) and any(map(_read_quantities, items))
    return (left, right) if are_lists else None


def comparable_values(gold: str, answer: str) -> tuple[list[tuple[str, str]], bool]:
    """Return pairs of texts without units of which one has to agree, and whether both answers name a unit.

    There are none if neither answer names a unit, or if their units are of different kinds.
    """
    left, right = _read_quantities(gold), _read_quantities(answer)
    texts = plain_words(gold), plain_words(answer)
    if bool(left) != bool(right) and re.search(r"\d\s*[A-Za-z]$", texts[0]) and texts[0].swapcase() == texts[1]:
        return [], True
    if (
        bool(left) != bool(right)
        and _PERCENT.search(answer if left else gold)
        and not all(map(_PERCENT.search, (gold, answer)))
    ):
        return [], True
    if left and right:
        same_kind = [pair for pair in product(left, right) if pair[0].unit.is_like(pair[1].unit)]
        return [_in_one_unit(*pair) for pair in same_kind], True
    pairs = [(left[0].value, answer)] if left else [(gold, right[0].value)] if right else []
    (radian,) = _meanings("rad")
    # An angle without a unit is in radians; only those with pi are taken for angles.
    if "pi" in gold + answer:
        pairs += [(_converted(angle, radian), answer) for angle in left if angle.unit.kind() == radian.kind()]
        pairs += [(gold, _converted(angle, radian)) for angle in right if angle.unit.kind() == radian.kind()]
    return pairs, False


def _in_one_unit(left: _Quantity, right: _Quantity) -> tuple[str, str]:
    """Return the values of two quantities in the smaller of their units, of equal ones where the answer is rounded."""
    if _rounds_to(left, right):
        return left.value, left.value
    if left.unit.factor < right.unit.factor:
        return left.value, _converted(right, left.unit)
    return _converted(left, right.unit), right.value


def _rounds_to(gold: _Quantity, answer: _Quantity) -> bool:
    """Return whether an answer in another unit is the gold value at its precision, which is that of its last digit.

    1 mile is right for 1.6 km, since no number of miles with two digits is 1.6 km. The answer has no more digits than
    the gold one, which has two at least. What has an exact conversion with as many digits, 0.5 days for 12 hours, must
    be exact, and so must the answer where the gold value has fewer digits than its conversion: 1.6 km is not 1 mile.
    """
    texts = gold.value.strip(), answer.value.strip()
    if gold.unit == answer.unit or not all(map(_PLAIN_NUMBER.fullmatch, texts)):
        return False
    mine, other = gold.unit, answer.unit
    digits = [len(re.sub(r"^[-+0.]+|\.|0+$" if "." not in text else r"^[-+0.]+|\.", "", text)) for text in texts]
    ratio = other.factor / mine.factor * Fraction(math.pi) ** (other.pi_power - mine.pi_power)
    exact = (Fraction(texts[0]) + mine.zero) / ratio - other.zero
    converted = (Fraction(texts[1]) + other.zero) * ratio - mine.zero
    num_decimals = len(texts[0].partition(".")[2])
    is_exact = float(f"{float(exact):.{digits[0]}g}") == float(exact)
    is_near = abs(converted - Fraction(texts[0])) * 2 * 10**num_decimals <= 1
    return digits[0] > 1 and digits[1] <= digits[0] and not is_exact and is_near


def _converted(quantity: _Quantity, unit: _Unit) -> str:
    mine, ratio = quantity.unit, quantity.unit.factor / unit.factor
    pi_power = mine.pi_power - unit.pi_power
    if mine == unit or mine.is_generic() or unit.is_generic():
        return quantity.value
    # Exact, since Math-Verify tells 9.8 * 100 from 980.
    value = _DECIMAL.sub(lambda match: _latex(Fraction(match[0])), quantity.value)
    text = f"({value}+{_latex(mine.zero)})" if mine.zero else f"({value})"
    text += rf"\cdot {_latex(ratio)}" + r"\cdot\pi" * pi_power + r"/\pi" * -pi_power
    return f"{text}-{_latex(unit.zero)}" if unit.zero else text


def _latex(number: Fraction) -> str:
    return str(number) if number.denominator == 1 else rf"\frac{{{number.numerator}}}{{{number.denominator}}}"


def _read_quantities(text: str) -> list[_Quantity]:
    """Return the meanings of a text that is a number with a unit, or any other value with a unit as its last text."""
    found = _read_parts(text)
    match = None if found else _NAMED.fullmatch(text.strip())
    if match is None or COMMA.search(match["value"]):
        return found
    unit = apply_steps(PLAIN[1:], match["unit"] + (match["power"] or "")).strip()
    return [_Quantity(match["value"], meaning) for meaning in _read_unit(unit)]


def _read_parts(text: str) -> list[_Quantity]:
    """Return the meanings of a text that is a number with a unit, or several such as 5 feet 6 inches, which add up."""
    text = plain_words(text)
    if text.startswith("("):
        if COMMA.search(text):
            return []
        text = re.sub(r"^\(([^()]*)\)$", r"\1", text)
    parts: list[tuple[str, list[_Unit]]] = []
    place = 0
    while place < len(text):
        match = _PART.match(text, place)
        value = "" if match is None else _read_value(match["value"])
        if (
            match is None
            or len(parts) == _MAX_NAMES
            or not re.search(r"\d|\\pi", value)
            or re.search(r"\d[kKMBuSG]$", text)
        ):
            return []
        parts.append((value, _read_unit("/" * match["value"].strip().endswith("/") + match["unit"])))
        place = match.end()
    meanings = (tuple(units) for units in product(*(units for _, units in parts)))
    values = [value for value, _ in parts]
    return [_sum(values, units) for units in meanings if units and _add_up(units)]


def _read_value(text: str) -> str:
    value = re.sub(r"(?:[\s*/-]|\\cdot|\\times)+$", "", _THOUSANDS.sub("", text))
    value = re.sub(r"^(\d+),(\d+)$", r"\1.\2", value.strip())
    value = re.sub(r"\^\s*(-?\d+)", r"^{\1}", value)
    return "" if "," in value else with_mixed_numbers(value)


def _add_up(units: tuple[_Unit, ...]) -> bool:
    return all(larger.kind() == unit.kind() and larger.factor > unit.factor for larger, unit in pairwise(units))


def _sum(values: Sequence[str], units: tuple[_Unit, ...]) -> _Quantity:
    terms = [_converted(_Quantity(*part), units[-1]) for part in zip(values, units, strict=True)]
    return _Quantity("+".join(terms), units[-1])


def _read_unit(text: str) -> list[_Unit]:
    """Return what a name of a unit, or a product or ratio of several, can mean; nothing if one is unknown.

    Unknown words that are counted per unit are numbers.
    """
    numerator, *denominators = apply_steps(_UNIT_PLAIN, _long_names().sub(_joined, text)).split("/")
    words = numerator.split()
    if not denominators and words and len(words[0]) > 1 and words[0] != "in":
        # Of "12 hours later" and "5 cubic feet of water" the known names before the other words are the unit.
        numerator = " ".join(takewhile(lambda word: _read_factor(word, 1), words))
    unknown = {token for token in numerator.split() if denominators and len(token) > 2 and not _read_factor(token, 1)}
    signed = [(token, 1) for token in numerator.split() if token not in unknown]
    signed += [(token, -1) for group in denominators for token in group.split()]
    if not 0 < len(signed) <= _MAX_NAMES:
        return []
    factors = [_read_factor(token, sign) for token, sign in signed]
    counted = frozenset(_PLURAL.sub("", token.lower().replace("people", "person")) for token in unknown)
    meanings = dict.fromkeys(_multiply(units) for units in product(*factors))
    return [replace(unit, counted=unit.counted | counted) for unit in meanings]


def _read_factor(token: str, sign: int) -> list[_Unit]:
    match = _TOKEN.fullmatch(token)
    if match is None:
        return []
    name, power = match[1], sign * int(match[2] or 1)
    own = _meanings(name)
    units = own + (_in_another_case(name) if len(name) > 1 and (name.isupper() or not own) else [])
    return [unit if power == 1 else _raise(unit, power) for unit in units]


@cache
def _in_another_case(name: str) -> list[_Unit]:
    """Return what a name means in small letters, else in the only other case that has a meaning.

    What is of the same kind as the name itself is left out. MM is mm, and KPA is kPa. ML is no ml, since it is a
    million litres, and MPA may be MPa or mPa.
    """
    mine = {unit.kind() for unit in _meanings(name)}
    names = [name.lower()] if _meanings(name.lower()) else _cases().get(name.lower(), [])
    others = [unit for other in names if other != name for unit in _meanings(other) if unit.kind() not in mine]
    return [unit for unit in others if len({one.factor for one in others if one.kind() == unit.kind()}) == 1]


def _raise(unit: _Unit, power: int) -> _Unit:
    powers = frozenset((name, own * power) for name, own in unit.powers)
    return _Unit(powers, unit.factor**power, unit.pi_power * power)


def _multiply(units: tuple[_Unit, ...]) -> _Unit:
    if len(units) == 1:
        return units[0]
    powers: Counter[str] = Counter()
    factor, pi_power = Fraction(1), 0
    for unit in units:
        for name, power in unit.powers:
            powers[name] += power
        factor *= unit.factor
        pi_power += unit.pi_power
    return _Unit(frozenset((name, power) for name, power in powers.items() if power), factor, pi_power)


def _joined(match: re.Match[str]) -> str:
    return _without_joints(match[0])


def _without_joints(name: str) -> str:
    return re.sub(r"s?[_\s-]+", "", name.lower())


@cache
def _long_names() -> re.Pattern[str]:
    """Return what finds the names of several words, written with `_` in `units.yaml`."""
    names = "|".join("s?[\\s-]+".join(name.split("_")) for name in _read_file()["long"] for name in name.split())
    return re.compile(rf"\b(?:{names})(?:e?s)?\b", re.IGNORECASE)


@cache
def _meanings(name: str) -> list[_Unit]:
    """Return what a name in `units.yaml` can mean."""
    return [_define(name, definition) for definition in _definitions().get(name, ())]


def _define(name: str, definition: str) -> _Unit:
    if definition == name:
        return _Unit(frozenset(() if name == "π" else {(name, 1)}), Fraction(1), int(name == "π"))
    match = cast(re.Match[str], _DEFINITION.fullmatch(definition))
    unit = _read_unit(match["unit"])[0]
    return replace(unit, factor=unit.factor * Fraction(match["factor"] or 1), zero=Fraction(match["zero"] or 0))


@cache
def _read_file() -> dict[str, dict[str, str]]:
    content: dict[str, dict[str, str]] = yaml.safe_load(_FILE.read_text(encoding="utf-8"))
    return content


@cache
def _cases() -> dict[str, list[str]]:
    """Return the names of units by the same in small letters."""
    found: dict[str, list[str]] = defaultdict(list)
    for name in _definitions():
        found[name.lower()].append(name)
    return found


@cache
def _definitions() -> dict[str, list[str]]:
    """Return the definitions of each name, those with prefixes and plurals too."""
    content = _read_file()
    entries = [([*map(_without_joints, names.split())], definition) for names, definition in content["long"].items()]
    entries += [(names.split(), text) for kind in ("prefixed", "plain") for names, text in content[kind].items()]
    for names in map(str.split, content["prefixed"]):
        for prefixes, power in _PREFIXES.items():
            symbol, word = prefixes.split()[:-1], prefixes.split()[-1]
            named = [before + name for name in names if len(name) < 4 for before in symbol]
            entries.append((named + [word + name for name in names if len(name) > 2], f"1e{power} {names[0]}"))
    found: dict[str, list[str]] = defaultdict(list)
    for names, definition in entries:
        plurals = [f"{name}s" for name in names if len(name) > 2]
        for name in [*names, *plurals]:
            found[name].append(definition)
    return found
