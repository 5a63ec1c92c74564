r"""Plain numbers as people write them: decimals, thousands, fractions, scientific notation, with a unit or without."""

import re
from fractions import Fraction

MAX_EXPONENT = 400
_LAYOUT = re.compile(r"\\left(?![A-Za-z])|\\right(?![A-Za-z])|\\[,!;: ]|~|\\?\$|\\displaystyle")
_NAME = re.compile(r"^[A-Za-z](?:_\{?\w+\}?)?\s*=\s*")
_WORDED_UNIT = re.compile(
    r"\\(?:text|textbf|textrm|mathrm|operatorname|mbox|mathbf)\s*\{[^{}]*\}(?:\s*\^\s*\{?-?\d+\}?)?"
)
_BETWEEN_UNITS = r"(?:\s|\\cdot|/|\*)*"
_TRAILING_UNITS = re.compile(rf"(?:{_BETWEEN_UNITS}{_WORDED_UNIT.pattern})+\s*$")
_BARE_UNIT = re.compile(
    r"(?<=[\d}\s])\s*(?:k?m|cm|mm|nm|k?g|mg|s|ms|min|h|hours?|minutes?|seconds?|days?|years?|degrees?|percent|"
    r"dollars?|cents?|units?|inches|feet|miles?|met(?:er|re)s?|K|Hz|J|eV|W|V|N|Pa|mol|erg|rad)\.?$"
)
_SIGNS = re.compile(r"\\%|%|\^\s*\{?\s*\\circ\s*\}?|°")
_THOUSANDS = re.compile(r"(?<![\d.])([1-9]\d{0,2})((?:(?:,|\{,\})\d{3})+)(?![\d,])")
_DECIMAL = r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})"
_SCIENTIFIC = re.compile(
    rf"(?:(?P<mantissa>{_DECIMAL})(?:[eE](?P<short>[+-]?\d{{1,3}})|(?:\\times|\\cdot|\*|x|×)10\^(?P<power>{{[+-]?\d{{1,3}}}}|[+-]?\d{{1,3}})))"  # noqa: RUF001 - people type the sign itself
    r"|10\^(?P<bare>\{[+-]?\d{1,3}\}|[+-]?\d{1,3})"
)
_NUMBER = re.compile(_DECIMAL)
_FRACTION = re.compile(
    r"(?P<sign>[+-]?)(?:(?P<whole>\d{1,40}))?\\[dt]?frac(?:\{(?P<top>-?\d{1,400})\}\{(?P<bottom>\d{1,400})\}|(?P<tops>\d)(?P<bottoms>\d))"
    r"|(?P<slash>[+-]?\d{1,400})/(?P<under>\d{1,400})"
)
_ARITHMETIC = re.compile(
    r"(?:[\d.\s+*/^(){}!,×÷-]|\\times|\\cdot|\\div|\\[dt]?binom|\\[dt]?frac)+"  # noqa: RUF001 - as above
)


def without_unit(text: str) -> str:
    """Return an answer without its name, layout, unit, percent or degree sign."""
    bare = _NAME.sub("", _LAYOUT.sub(" ", text).strip())
    bare = _SIGNS.sub("", _TRAILING_UNITS.sub("", bare)).strip()
    return _BARE_UNIT.sub("", bare).strip().removesuffix(".").strip()


def read_quantity(text: str) -> Fraction | None:
    """Return the number that a text without unit is, exactly, or None if it is no plain number."""
    compact = re.sub(r"\s+", "", _THOUSANDS.sub(lambda found: re.sub(r"\D", "", found.group()), text))
    compact = compact.replace("−", "-")  # noqa: RUF001 - people type the sign itself
    if _NUMBER.fullmatch(compact):
        return Fraction(compact.removesuffix("."))
    scientific = _SCIENTIFIC.fullmatch(compact)
    if scientific is not None:
        return _scientific(scientific)
    fraction = _FRACTION.fullmatch(compact)
    return None if fraction is None else _fraction(fraction)


def is_arithmetic(text: str) -> bool:
    """Return whether a text that is no plain number is a calculation with plain numbers, still to be done."""
    return _ARITHMETIC.fullmatch(text.strip()) is not None


def _scientific(found: re.Match[str]) -> Fraction | None:
    power = next(part for part in (found["short"], found["power"], found["bare"]) if part is not None)
    exponent = int(power.strip("{}"))
    if abs(exponent) > MAX_EXPONENT:
        return None
    return Fraction((found["mantissa"] or "1").removesuffix(".")) * Fraction(10) ** exponent


def _fraction(found: re.Match[str]) -> Fraction | None:
    top, bottom = found["top"] or found["tops"] or found["slash"], found["bottom"] or found["bottoms"] or found["under"]
    if int(bottom) == 0:
        return None
    value = int(found["whole"] or 0) + Fraction(int(top), int(bottom))
    return -value if found["sign"] == "-" else value
