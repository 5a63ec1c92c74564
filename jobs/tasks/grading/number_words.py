"""Numbers in words, such as `twenty-one`, `three quarters`, `minus five` and `two point five`."""

import re
from fractions import Fraction

_DIGITS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_VALUES = {word: value for value, word in enumerate(_DIGITS)} | {
    "ten": 10, "eleven": 11, "twelve": 12, "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16,
    "seventeen": 17, "eighteen": 18, "nineteen": 19, "twenty": 20, "thirty": 30, "forty": 40, "fifty": 50,
    "sixty": 60, "seventy": 70, "eighty": 80, "ninety": 90,
}  # fmt: skip
_SCALES = {"hundred": 10**2, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_PARTS = {"half": 2, "halve": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7} | {
    "eighth": 8, "ninth": 9, "tenth": 10,
}  # fmt: skip
_WORD, _PART = "|".join([*_VALUES, *_SCALES]), "|".join(_PARTS)
_NUMBER = re.compile(
    rf"\b(?:(?P<sign>negative|minus)\s+)?"
    rf"(?P<words>(?:an?(?=\s+(?:hundred|thousand|million|billion|dozen|{_PART}))|{_WORD})"
    rf"(?:[\s-]+(?:and\s+)?(?:{_WORD}))*)\b"
    rf"(?:\s+point(?P<digits>(?:\s+(?:{'|'.join(_DIGITS)})\b)+)"
    rf"|[\s-]+(?P<part>{_PART})s?\b|\s+and\s+(?:a|one)\s+(?P<rest>{_PART})\b)?",
    re.IGNORECASE,
)


def with_digits(text: str) -> str:
    """Return a text that begins with a number in words with all its numbers in digits, any other text unchanged."""
    first = _NUMBER.search(text)
    if first is None or re.search("[A-Za-z]{2}", re.sub(r"\\[A-Za-z]+", " ", text[: first.start()])):
        return text
    return _NUMBER.sub(_as_digits, text)


def _as_digits(match: re.Match[str]) -> str:
    words = match["words"].lower().replace("-", " ").split()
    value = _read(words)
    if value is None:
        # Several numbers, such as `one and two`.
        return re.sub(r"[a-z]+", lambda word: str(_VALUES.get(word[0], word[0])), match[0].lower())
    sign = "-" if match["sign"] else ""
    if match["digits"]:
        return f"{sign}{value}.{''.join(str(_VALUES[word]) for word in match['digits'].lower().split())}"
    number = Fraction(value, _PARTS[match["part"].lower()] if match["part"] else 1)
    number += Fraction(1, _PARTS[match["rest"].lower()]) if match["rest"] else 0
    if number.denominator == 1:
        return f"{sign}{number}"
    return rf"{sign}\frac{{{number.numerator}}}{{{number.denominator}}}"


def _read(words: list[str]) -> int | None:
    """Return the number that words name, None if they name several."""
    total = current = 0
    last_scale = 10**15
    for place, word in enumerate(words):
        value = 1 if word in {"a", "an"} else _VALUES.get(word)
        if word == "and":
            is_one = words[place - 1] in _SCALES
        elif value is not None:
            is_one = current % 100 == 0 if value > 9 else current % 10 == 0 and current % 100 != 10
            current += value
        elif word == "hundred":
            is_one = 0 < current < 100
            current *= 100
        else:
            is_one = current > 0 and _SCALES[word] < last_scale
            last_scale = _SCALES[word]
            total, current = total + current * last_scale, 0
        if not is_one:
            return None
    return total + current
