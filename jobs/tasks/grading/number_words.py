"""Numbers in words, such as `twenty-one`, `three quarters` and `minus five`, and numbers of what is counted."""

import re
from calendar import day_name, month_name
from fractions import Fraction

from exgrpo.jobs.tasks.grading.plain_text import MARKS, plain_words, split_directions
from exgrpo.jobs.tasks.grading.units import is_quantity, is_unit

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


_MAY_BE_COUNT = re.compile(r"\d[^,;=<>]{0,80}?[\s{~-](?!\\)[^\W\d_]{3}")
_COUNT = re.compile(
    r"(?P<value>(?:\\(?:[dt]?frac|sqrt|[dt]?binom|pi|times|cdot)(?![A-Za-z])|(?<![^({^])-|\d,(?=\d{3}(?!\d))"
    rf"|[\d\s.{{}}()^!+*/])*[\d}})!])(?:\s+(?P<words>(?:[^\W\d_]|[{MARKS}])+(?:[\s-]+[^\W\d_]+)*)[.!]?)?"
)
_COUNT_WORD = re.compile(r"(?![abcxyz]{3}$)(?=.*[aeiouyAEIOUY\u00c0-\uffff])[^\W\d_][^\W\d_A-Z]{2,}")
"""A word, not a product of letters such as xyz or the name of points such as ABC."""
_SMALL = {"of", "in", "on"}
_CHANGES = (
    "and but else nor not never none neither without cannot wrong incorrect false undefined unknown except "
    "excluding than more less fewer least most minimum maximum max min about almost nearly approximately approx "
    "around roughly between until till through thru from per each every apiece percent percentage percents point "
    "pct half halve halves third thirds quarter quarters fourth fourths fifth fifths sixth sixths seventh "
    "sevenths eighth eighths ninth ninths tenth tenths hundredth hundredths thousandth thousandths millionth "
    "millionths first second hundred thousand million billion trillion dozen score scores gross double triple "
    "quadruple twice thrice twofold threefold fold plus minus over divided multiplied squared cubed square cube "
    "cubic factorial factorials choose permute power exponent raised root sqrt mod modulo base binary ternary "
    "octal decimal hex hexadecimal remainder infinity infinite inf infty sin cos tan sec csc cot log exp alpha "
    "beta gamma delta epsilon theta lambda sigma phi psi omega rho tau negative positive under below above "
    "greater smaller larger bigger noon midnight morning afternoon evening night clock oclock increase increased "
    "increases increasing decrease decreased decreases decreasing gain loss profit drop reduction before after "
    "early late earlier later ahead behind higher lower farther warmer colder hotter deposit withdrawal credit "
    "debit surplus deficit north south east west"
)
_CHANGES_VALUE = {*_CHANGES.split(), *map(str.casefold, (*day_name, *month_name))}
"""Words after which a number is another value, a bound, a part, a date, or a change."""
_TELLS_APART = "odd even older younger faster slower heavier lighter taller shorter"
"""Words that make two counts differ, but not a count from its number."""
_SEVERAL = re.compile(r"\b(pair|couple|trio|duo)s?\b")
"""Words that name several things: 12 pairs of shoes are not 12 shoes. A number alone says nothing of what it counts."""


def counted_numbers(gold: str, answer: str) -> tuple[str, str] | None:
    """Return the numbers of two answers if plain words follow at least one of them, else None.

    A unit behind other words, such as `12 total miles`, is not read, so that it is compared only with a plain number.
    """
    if not any(map(_MAY_BE_COUNT.search, (gold, answer))):
        return None
    left, right = (_COUNT.fullmatch(plain_words(text)) for text in (gold, answer))
    if left is None or right is None:
        return None
    several, others = (_SEVERAL.findall((count["words"] or "").lower()) for count in (left, right))
    if several != others and left["words"] and right["words"]:
        return None
    phrases = [(text, count["words"]) for text, count in ((gold, left), (answer, right)) if count["words"]]
    plain = [re.split(r"[\s-]+", phrase) for text, phrase in phrases if not is_quantity(text)]
    if not plain or not all(map(_is_plain, plain)) or (len(phrases) > 1 and any(map(_tells_apart, plain))):
        return None
    return left["value"], right["value"]


def _is_plain(words: list[str]) -> bool:
    """Return whether words name what is counted, and say nothing about the number."""
    are_words = words[0] not in {"in", "on"} and all(word in _SMALL or _COUNT_WORD.fullmatch(word) for word in words)
    changes = any(word.casefold() in _CHANGES_VALUE or with_digits(word) != word for word in words)
    return are_words and not changes and not split_directions(" ".join(words))[1]


def _tells_apart(words: list[str]) -> bool:
    return any(word.casefold() in _TELLS_APART.split() or (word not in _SMALL and is_unit(word)) for word in words)
