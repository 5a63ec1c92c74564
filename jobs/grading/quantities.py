r"""Plain numbers as people write them: decimals, thousands, mixed numbers, scientific notation, scales and units."""

import re
from dataclasses import dataclass
from fractions import Fraction

from jobs.grading.units import SCALES, Unit, plain_words, read_unit, split_unit

MAX_EXPONENT = 400
MAX_LAYERS = 3
"""Of brackets around a number that are read through."""
_LAYOUT = re.compile(r"\\left(?![A-Za-z])|\\right(?![A-Za-z])|\\[,;: ]|~|(?<!\\)\$|\\displaystyle")
_NAME = re.compile(r"^[A-Za-z](?:_\{?\w+\}?)?\s*=\s*")
_SCALE_WORDS = re.compile(rf"\b({'|'.join(SCALES)})s?\b", re.IGNORECASE)
_SCALE_LETTERS = {"k": 10**3, "K": 10**3, "M": 10**6, "B": 10**9}
_THOUSANDS = re.compile(r"(?<![\d.,])(?<!\d )[1-9]\d{0,2}(?:(?:(?:,|\{,\})\d{3})+|(?: \d{3})+(?!/))(?![\d,]| \d)")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_DECIMAL = r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})"
_SCIENTIFIC = re.compile(
    rf"(?:(?P<mantissa>{_DECIMAL})(?:[eE](?P<short>[+-]?\d{{1,3}})|(?:\\times|\\cdot|\*|x|×)10\^(?P<power>{{[+-]?\d{{1,3}}}}|[+-]?\d{{1,3}})))"  # noqa: RUF001 - people type the sign itself
    r"|10\^(?P<bare>\{[+-]?\d{1,3}\}|[+-]?\d{1,3})"
)
_NUMBER = re.compile(_DECIMAL)
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)(?P<whole>\d{1,40})?\\[dtc]?frac(?P<top>\{[+-]?\d{1,400}\}|\d)(?P<bottom>\{[+-]?\d{1,400}\}|\d)"
)
_SLASHED = re.compile(r"(?P<sign>[+-]?)(?:(?P<whole>\d{1,40})\s)?(?P<top>\d{1,400})/(?P<bottom>\d{1,400})")
_ARITHMETIC = re.compile(
    r"(?:[\d.\s+*/^(){}!,×÷-]|\\times|\\cdot|\\div|\\[dt]?binom|\\[dt]?frac)+"  # noqa: RUF001 - as above
)
_OPERATOR = re.compile(r"[\d)}!]\s*(?:[+*/×÷-]|\\times|\\cdot|\\div)\s*[-+({\\\d.]")  # noqa: RUF001 - as above
_VARIABLE = re.compile(r"\d[a-zAC-JLN-Z]$")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number, and its unit if there is one that the table knows."""

    value: Fraction
    unit: Unit | None = None
    is_scaled: bool = False
    """Whether a word or a letter such as million or K multiplied the number as it is written."""


def read_quantity(text: str) -> Quantity | None:
    """Return the number that a text is, with its scale and unit, or None if it is no plain number."""
    number, unit_text = split_unit(bare_text(text))
    words = plain_words(unit_text)
    if number.startswith("\\$") or number.endswith("\\$"):
        number, words = number.removeprefix("\\$").removesuffix("\\$"), f"{words} dollar"
    scale = 1
    for word in _SCALE_WORDS.findall(words):
        scale *= SCALES[word.lower()]
    if number[-1:] in _SCALE_LETTERS and number[-2:-1].isdigit():
        scale, number = scale * _SCALE_LETTERS[number[-1]], number[:-1]
    value = read_number(number)
    return None if value is None else Quantity(value * scale, read_unit(_SCALE_WORDS.sub(" ", words)), scale != 1)


def bare_text(text: str) -> str:
    """Return an answer without its name and layout."""
    return _NAME.sub("", _LAYOUT.sub(" ", text.replace("\\!", "")).strip()).removesuffix(".").strip()


def read_number(text: str) -> Fraction | None:
    """Return the number that a text without unit is, exactly, or None if it is no plain number."""
    compact = _without_brackets(text.replace("−", "-"))  # noqa: RUF001 - people type the sign itself
    compact = _THOUSANDS.sub(lambda joined: re.sub(r"\D", "", joined.group()), re.sub(r"\s+", " ", compact))
    compact = _SPACE.sub("", compact)
    if _NUMBER.fullmatch(compact):
        return Fraction(compact.removesuffix("."))
    scientific = _SCIENTIFIC.fullmatch(compact)
    if scientific is not None:
        return _scientific(scientific)
    fraction = _FRACTION.fullmatch(compact) or _SLASHED.fullmatch(compact)
    return None if fraction is None else _fraction(fraction)


def is_arithmetic(text: str) -> bool:
    """Return whether a text is a sum, difference, product or quotient of plain numbers, still to be calculated."""
    return _ARITHMETIC.fullmatch(text.strip()) is not None and _OPERATOR.search(text) is not None


def ends_in_variable(text: str) -> bool:
    """Return whether a single letter stands right behind the number: `5m` is 5 times m, `5 m` is a length."""
    return _VARIABLE.search(bare_text(text)) is not None


def is_enclosed(text: str) -> bool:
    """Return whether the first character is a bracket that the last character closes."""
    depth = 0
    for index, letter in enumerate(text):
        depth += (letter in "([{") - (letter in ")]}")
        if depth <= 0:
            return index == len(text) - 1 > 0
    return False


def _without_brackets(text: str) -> str:
    bare = text.strip()
    for _ in range(MAX_LAYERS):
        if bare[:1] + bare[-1:] not in ("()", "{}") or not is_enclosed(bare):
            break
        bare = bare[1:-1].strip()
    return bare


def _scientific(found: re.Match[str]) -> Fraction | None:
    power = next(part for part in (found["short"], found["power"], found["bare"]) if part is not None)
    exponent = int(power.strip("{}"))
    if abs(exponent) > MAX_EXPONENT:
        return None
    return Fraction((found["mantissa"] or "1").removesuffix(".")) * Fraction(10) ** exponent


def _fraction(found: re.Match[str]) -> Fraction | None:
    """Return a fraction's or a mixed number's value; the part behind a whole number is a proper fraction."""
    top, bottom = int(found["top"].strip("{}")), int(found["bottom"].strip("{}"))
    if bottom == 0 or (found["whole"] and not 0 <= top < bottom):
        return None
    value = int(found["whole"] or 0) + Fraction(top, bottom)
    return -value if found["sign"] == "-" else value
