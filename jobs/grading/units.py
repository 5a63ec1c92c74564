r"""Units of measurement, as far as two answers can be compared by them: `36 km/h` is `10 m/s`, and no `36 m`."""

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction

_SIZES: dict[str, dict[str, Fraction | int]] = {
    "length": {
        "m": 1, "meter": 1, "metre": 1, "km": 1000, "kilometer": 1000, "kilometre": 1000, "cm": Fraction(1, 100),
        "centimeter": Fraction(1, 100), "centimetre": Fraction(1, 100), "mm": Fraction(1, 1000),
        "millimeter": Fraction(1, 1000), "nm": Fraction(1, 10**9), "inch": Fraction(254, 10_000),
        "inches": Fraction(254, 10_000), "ft": Fraction(3048, 10_000), "foot": Fraction(3048, 10_000),
        "feet": Fraction(3048, 10_000), "yard": Fraction(9144, 10_000), "mile": Fraction(1_609_344, 1000),
    },
    "mass": {
        "g": 1, "gram": 1, "kg": 1000, "kilogram": 1000, "mg": Fraction(1, 1000), "lb": Fraction(45_359_237, 100_000),
        "pound": Fraction(45_359_237, 100_000),
    },
    "time": {
        "s": 1, "sec": 1, "second": 1, "ms": Fraction(1, 1000), "min": 60, "minute": 60, "h": 3600, "hr": 3600,
        "hour": 3600, "day": 86_400, "week": 604_800,
    },
    "years": {"year": 12, "month": 1},
    "money": {"dollar": 100, "cent": 1},
    "energy": {"J": 1, "kJ": 1000, "erg": Fraction(1, 10**7)},
    "volume": {"L": 1000, "liter": 1000, "litre": 1000, "mL": 1, "ml": 1},
    "degrees": {"degree": 1},
    "radians": {"rad": 1, "radian": 1},
    **{name: {name: 1} for name in ("K", "Hz", "eV", "W", "V", "N", "Pa", "mol")},
    "": {"percent": Fraction(1, 100), "percentage": Fraction(1, 100), "pct": Fraction(1, 100)},
}  # fmt: skip
_NAMES = {name: (kind, Fraction(size)) for kind, sizes in _SIZES.items() for name, size in sizes.items()}
SCALES = {"thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12, "dozen": 12}
_PLAIN = sorted((f"{name}s?" if len(name) > 2 else name for name in (*_NAMES, *SCALES)), key=len, reverse=True)
_POWER = r"(?:\s*\^\s*\{?-?\d+\}?)?"
_WRAPPER = r"\\(?:text|textbf|textrm|textnormal|mathrm|operatorname|mbox|mathbf)\s*\{"
_WORDED = rf"{_WRAPPER}[^{{}}]*\}}{_POWER}"
_SIGN = r"\\?%|\^\s*\{?\s*\\circ\s*\}?|°"
_BETWEEN = r"(?:\s|\\cdot|/|\*){0,8}"  # bounded, so that hostile answers take linear time
_TAIL = re.compile(
    rf"(?:{_BETWEEN}(?:{_WORDED}|{_SIGN}|(?<![A-Za-z\\])(?:(?<!\d)K|(?!K)(?:{'|'.join(_PLAIN)})){_POWER}(?![A-Za-z])))+\.?$"
)
_TOKEN = re.compile(r"(?P<word>[A-Za-z]+)(?:\s*\^\s*\{?(?P<power>-?\d+)\}?)?|(?P<per>/)")


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of the table or a product of such: how many base units it is, and the power of each kind of base unit."""

    size: Fraction
    powers: frozenset[tuple[str, int]]


PERCENT = Unit(Fraction(1, 100), frozenset())


def split_unit(text: str) -> tuple[str, str]:
    """Return a text without the units and scales at its end, and what was cut off."""
    bare = re.sub(r"\s+", " ", text).strip()
    tail = _TAIL.search(bare)
    return (bare, "") if tail is None else (bare[: tail.start()].strip(), tail.group().strip())


def plain_words(text: str) -> str:
    """Return a text with signs of percent and degrees as words, and without the commands that set words as text."""
    words = re.sub(_WRAPPER, " ", re.sub(r"\\?%", " percent ", re.sub(r"\^\s*\{?\s*\\circ\s*\}?|°", " degree ", text)))
    return re.sub(r"\}(?!\s*\^)", " ", re.sub(r"\}(?=\s*\^)", "", words))


def read_unit(text: str) -> Unit | None:
    """Return the unit that a text names, or None if it names none or holds a word that is no unit of the table."""
    size, powers, direction = Fraction(1), Counter[str](), 1
    tokens = list(_TOKEN.finditer(text))
    for token in tokens:
        if token["per"] or token["word"] == "per":
            direction = -1
            continue
        entry = _look_up(token["word"])
        power = direction * int(token["power"] or 1)
        if entry is None or abs(power) > 9:
            return None
        size *= entry[1] ** power
        powers[entry[0]] += power
        direction = 1
    return Unit(size, frozenset((kind, power) for kind, power in powers.items() if kind and power)) if tokens else None


def _look_up(word: str) -> tuple[str, Fraction] | None:
    names = (word, word.lower(), word.lower().removesuffix("s"))
    return next((_NAMES[name] for name in names if name in _NAMES and (name == word or len(name) > 2)), None)
