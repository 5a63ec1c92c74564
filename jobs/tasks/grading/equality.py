r"""Equality of two boxed answers by Math-Verify, and what it gets wrong in ways that can be told for sure.

| Math-Verify alone | Here |
|---|---|
| letters are multiplied: `BAC` = `ABC`, `listen` = `silent` | words, points and numbers such as 0x1F are texts |
| case is lost: `v/V` = 1, `2x` = `2X` | letters that occur in both cases are two symbols |
| an ellipsis is left out: `5\ldots` = 5 | the terms around it are compared in order (`lists.py`) |
| lists are sets: `1, 1, 2` = `1, 2` | what the gold answer repeats counts (`lists.py`) |
| numbers are rounded to six decimals: 1e-34 = 1e-33 | equal within a hundred thousandth of their size |
| Unicode signs, currency, `0.\overline{3}`, `1e-05`, `\varnothing` | written as LaTeX first |
| `x<2 or x>3` is no set | written as intervals where the other answer is one |
| units are left out: 5 m = 5 km | compared where both answers name one (`units.py`) |
| words after a number are products of letters | `12 people` is 12 (`number_words.py`) |
| the modulus is the value, and a base is left out | residues and numbers in bases are compared (`residues.py`) |
| times, dates and directions are products of letters | compared where both answers name one (`moments.py`) |
| `\lg 2` is 2 | the logarithm to base 10, as is `\log` where the other answer names this base |
| `2 3/4`, `**73**`, `5;`, `\underline{5}` | without markup and full-width signs, and with mixed numbers as sums |
"""

import re
import unicodedata
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from typing import Any

from exgrpo.jobs.tasks.grading.intervals import with_intervals
from exgrpo.jobs.tasks.grading.lists import (
    ELLIPSIS,
    OPPOSITES,
    compare_sequences,
    list_items,
    with_repeating_decimals,
)
from exgrpo.jobs.tasks.grading.moments import compare_moments
from exgrpo.jobs.tasks.grading.number_words import counted_numbers
from exgrpo.jobs.tasks.grading.plain_text import (
    have_other_ways,
    plain_words,
    split_directions,
    with_magnitudes,
    with_mixed_numbers,
    with_plain_digits,
)
from exgrpo.jobs.tasks.grading.readings import other_readings
from exgrpo.jobs.tasks.grading.residues import are_same_numerals, compare_residues, with_decimal_numerals
from exgrpo.jobs.tasks.grading.texts import compare_texts
from exgrpo.jobs.tasks.grading.units import comparable_values, is_quantity, is_unit, quantity_lists

RELATIVE_TOLERANCE = 1e-5
COMPUTED_TOLERANCE = 1e-12
"""What computing with decimals may change: 6.02e23 is 60.2e22."""
_MAX_COUNTED = 8
"""Values of a list that are compared one by one."""
Parse = Callable[[str], list[Any]]
Verify = Callable[[list[Any], list[Any]], bool]

_SIGNS = {
    "−": "-",  # noqa: RUF001 - what models write
    "×": r"\times ",  # noqa: RUF001 - as above
    "∪": r"\cup ",  # noqa: RUF001 - as above
    "％": r"\%",  # noqa: RUF001 - as above
    "∞": r"\infty ", "π": r"\pi ", "·": r"\cdot ", "÷": r"\div ", "≤": r"\le ", "≥": r"\ge ", "≠": r"\ne ",
    "√": r"\sqrt", "°": r"^\circ ", "º": r"^\circ ", "∅": r"\emptyset ", "∩": r"\cap ", "∈": r"\in ",
    r"\varnothing": r"\emptyset", "‰": r"\cdot\frac{1}{1000}", "±": r"\pm ", "∓": r"\mp ",
    "<=": r"\le ", ">=": r"\ge ", r"\{\}": r"\emptyset", r"\degree": r"^\circ",
}  # fmt: skip
_CURRENCY = re.compile(r"(?:\\text\{\s*)?([€£¥₹₩])(?:\s*\})?")
_CURRENCY_COMMANDS = {
    "pounds": "£", "sterling": "£", "euros?": "€", "EUR": "€", "yen": "¥", "dollar": r"\\$", "rupee": "₹", "cent": "¢",
    "won": "₩",
}  # fmt: skip
_FRACTIONS = {
    code: "\\frac{{{}}}{{{}}}".format(*unicodedata.normalize("NFKC", chr(code)).split("\u2044"))
    for code in (0xBC, 0xBD, 0xBE, *range(0x2150, 0x215F))
}
_UNIT_SIGNS = re.compile("[\u2100\u2103\u2109\u2126\u212a\u212b\u3371-\u33df]")
"""Units written as one sign, such as ℃, ㎝ and ㎏."""
_FULL_WIDTH = {code: chr(code - 0xFEE0) for code in range(0xFF01, 0xFF5F)} | {0x3000: " ", 0x3001: ","}
_COLOR = re.compile(r"\\(?:text)?color\s*\{\w+\}|\\(?:displaystyle|textstyle)(?![A-Za-z])|^\s*(?:\\approx|≈)")
_ENDS = re.compile(
    r"^(?:\\[;,:! ]|~|(?:\\text\s*\{)?(?:the\s+)?(?:final\s+)?answer(?:\s+is|\s*:)[\s:]*\}?)"
    r"|(?:\\[;,:! \\]?|~|[;,:。]|(?<=[}\d])\.|\\q?quad|\\(?:blacksquare|square|Box|checkmark|qed)|[■□∎✓✔])$",
    re.IGNORECASE,
)
"""Spaces of LaTeX around an answer, words before it, and a sign at its end, that of a finished proof too."""
_WRAPPED = (
    r"\\(?:underline|boldsymbol|bm|emph|fbox|mbox|hbox)\s*\{(.*)\}",
    r"\\(?:text|math)(?:bf|it|rm|tt|sf)?\s*\{((?:[a-z]\s*=)?[^A-Za-z]*\d.*)\}",
    r"\{\\(?:bf|it|rm|large|Large)(?![A-Za-z])(.*)\}",
    r"([*_`]{1,3}|[\"'])(.+)\1",
    r"<(b|i|u|em|strong)>(.*)</\1>",
)
_GROUPED = re.compile(
    r"(?<![\d.,])[1-9]\d{0,2}(?P<sign>\\[,;: ]|\s|~|,?\\!,?(?:\\!)?|\{,\}|\\text\{,\})\d{3}(?:(?P=sign)\d{3})*(?![\d/])"
)
"""Digits in groups of three, which Math-Verify reads as a product."""
_LOG = re.compile(r"\\?\b(?:log|ln)(?![A-Za-z]|\s*_)")
_LG = re.compile(r"\\lg(?![A-Za-z])")
_COMMON_LOG = re.compile(r"\\?\blog(?![A-Za-z]|\s*_)")
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar)\s*\{?(\d+)\}?")
_DOTTED = re.compile(r"(?<=\.)(\d*)\\dot\s*\{?(\d)\}?(?:(\d*)\\dot\s*\{?(\d)\}?)?(?!\d)")
"""Repeating digits as dots mark them, above the first and the last."""
_SYMBOL = r"[A-Za-z](?:_(?:\w|\{\w+\}))?"
_ORDER = r"(?:[<>≤≥]|\\(?:[lg]e|[lg]eq|[lg]eqslant|[lg]t)(?![a-z]))"
_NAME = re.compile(
    rf"(?:^|(?<=[,;]))\s*{_SYMBOL}\s*(?:=(?=[^=,;]+(?:[,;]|$))|(?={_ORDER}))"
    rf"|(?<=\d)\s*{_ORDER}\s*{_SYMBOL}(?=\s*(?:$|[,;]|{_ORDER}))"
)
"""The names in `V = 5, W = 6`, `V > 5` and `5 < V`, which answers may write in another case."""
_COUNTED_WORD = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}(?![A-Za-z])")
_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?)[eE]\+?(-?)0*(\d{1,3})(?!\w)")
"""A number as programs write it: 1e-05."""
_GREEK = r"\\(?i:gamma|delta|theta|lambda|xi|pi|sigma|upsilon|phi|psi|omega)(?![A-Za-z])"
_LETTER = re.compile(
    rf"\\(?:text|mathrm|mathbb|mathbf|operatorname)\s*\{{[^{{}}]*\}}|(?!{_GREEK})\\[A-Za-z]+|[A-Za-z]{{3,}}|"
    rf"(?<=\d)[eE](?=[-+\d])|(?P<letter>{_GREEK}|[A-Za-z])"
)
"""A letter that is a symbol by itself, among what is none."""
_PLAIN_NAME = re.compile(
    r"(?<![A-Za-z\\])(?:(pi|theta|alpha|beta|gamma|lambda|omega|phi)(?![A-Za-z])"
    r"|((?:arc)?(?:sin|cos|tan)h?|cot|csc|(?<!\d)(?<!\d\s)sec)(?=\s*(?:[(^\\\d]|[a-z](?![A-Za-z]))))"
)
"""The name of a number, an angle or a function without the backslash of LaTeX."""
_DASH = re.compile(r"(^|[=(\[{,+*/<>])\s*[\u2013\u2014]")
"""A dash that is a sign, not a range."""
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\d+(?:\.\d+)?|[A-Za-z]))")
_FILLERS = {"a", "an", "and", "at", "by", "in", "is", "it", "of", "percent", "the", "to", "was"}
_UNDECIDED = {"cannot", "neither", "never", "no", "non", "none", "nor", "not", "than", "without"}
"""Words that deny the others, or compare."""
_FALL = re.compile(
    r"(?:\ban?\s+)?\b(?:decreased?|drop|loss|reduction|below\s+sea[\s-]level)\b(?:\s+(?:of|by)\b)?", re.IGNORECASE
)
_BELOW_ZERO = re.compile(r"^(?=\d)([^-,;=]*?)\s*\bbelow\s*(\}?)\s*(?:zero|0)\b", re.IGNORECASE)
_LATIN = re.compile(r"\\[A-Za-z]+|([A-Za-z]+)")
"""A command of LaTeX, or a word."""


def are_equal(gold: str, answer: str, parse: Parse, verify: Verify) -> bool | None:
    """Return whether two answers are equal; None where Math-Verify reads nothing in the given one."""
    return decide(gold, answer, parse, verify)[0]


def decide(gold: str, answer: str, parse: Parse, verify: Verify) -> tuple[bool | None, str]:
    """Return whether two answers are equal, as `are_equal` does, and by which rule."""
    is_equal, rule = _decide_as_written(gold, answer, parse, verify)
    if is_equal:
        return is_equal, rule
    readings = other_readings(without_markup(gold), without_markup(answer))
    is_so = (name for name, left, right in readings if _decide_as_written(left, right, parse, verify)[0])
    reading = next(is_so, None)
    return (is_equal, rule) if reading is None else (True, reading)


def _decide_as_written(gold: str, answer: str, parse: Parse, verify: Verify) -> tuple[bool | None, str]:
    is_known: bool | None = are_same_numerals(gold, answer)
    gold, answer = without_markup(gold), without_markup(answer)
    by_terms = compare_sequences(gold, answer, lambda left, right: are_equal(left, right, parse, verify) is True)
    if by_terms is not None:
        return by_terms, "an ellipsis, and the terms around it"
    gold, answer = with_magnitudes(gold), with_magnitudes(answer)  # else 5 and 5 million are equal, as are 5 and 5 m
    by_text = is_known or _compare_forms(
        gold, answer, lambda left, right: are_equal(left, right, parse, verify) is True
    )
    if by_text is not None:
        return by_text, "bases, words such as million, times, dates, residues and directions"
    gold, answer = _without_directions(gold, answer)
    gold, answer = counted_numbers(gold, answer) or (gold, answer)
    pairs, have_units = comparable_values(gold, answer)
    is_equal: bool | None = any(_are_equal_values(*pair, parse, verify) for pair in pairs)
    if is_equal or have_units:
        return is_equal, "units"
    lists = quantity_lists(gold, answer)
    if lists is None:
        is_equal = _are_equal_values(gold, answer, parse, verify)
        is_equal = is_equal and _repeat_alike(list_items(gold), list_items(answer), parse, verify)
        return is_equal, "Math-Verify with corrections"
    are_same = _table(*lists, parse, verify)
    if re.match(r"(?:\\left\s*)?\(", gold):
        return all(row[place] for place, row in enumerate(are_same)), "a list of quantities, in order"
    # Equal values are a block of the table, and a block is square if both lists have as many of them.
    return all(0 < sum(row) == are_same.count(row) for row in are_same), "a list of quantities, in any order"


def _table(left: list[str], right: list[str], parse: Parse, verify: Verify) -> list[list[bool]]:
    """Return which values of two lists are equal, with a row for each of the left one."""
    return [[are_equal(one, other, parse, verify) is True for other in right] for one in left]


def _repeat_alike(left: list[str], right: list[str], parse: Parse, verify: Verify) -> bool:
    """Return False if the gold list repeats a value and the other list not as often, or if both are as long and differ.

    Lists with a value that stands for several, such as one with a sign of plus or minus, are not told apart.
    """
    if not 2 < max(len(left), len(right)) <= _MAX_COUNTED or min(len(left), len(right)) < 2:
        return True
    table = _table(left, right, parse, verify)
    if not all(map(any, [*table, *zip(*table, strict=True)])):
        return True
    counts = [(table.count(row), sum(row)) for row in table]
    return all(count == other for count, other in counts if count > 1 or len(left) == len(right))


def _compare_forms(gold: str, answer: str, is_same: Callable[[str, str], bool]) -> bool | None:
    """Return whether times, dates and residues agree; False where directions differ, and None of all other answers."""
    by_form = compare_moments(gold, answer)
    if by_form is None:
        by_form = compare_residues(gold, answer, is_same)
    plain = plain_words(gold), plain_words(answer)
    if by_form is None and (_are_opposite(*plain) or have_other_ways(gold, answer)):
        return False
    if _is_fall(*plain, is_same) or _is_fall(*plain[::-1], is_same):
        return True
    (rest, ways), (other, other_ways) = split_directions(gold), split_directions(answer)
    if (
        by_form is None
        and ways
        and other_ways
        and (ways != other_ways or not re.search(r"\w", plain_words(rest + other)))
    ):
        return ways == other_ways
    return by_form


def _are_opposite(gold: str, answer: str) -> bool:
    """Return whether one answer has a word such as `increase`, and the other the opposite one in the same place.

    It is unknown, and False, if a word denies one of them, or if they name people who are compared.
    """
    texts = [
        [word for word in _LATIN.findall(text) if word and word.lower() not in _FILLERS] for text in (gold, answer)
    ]
    left, right = ([word.lower() for word in words] for words in texts)
    only, only_others = {*left} - {*right}, {*right} - {*left}
    pairs = [{*pair.split("/")} for pair in OPPOSITES.split()]
    pair = next((pair for pair in pairs if pair & only and pair & only_others), None)
    if pair is None:
        return False
    if [word in pair or word for word in left] == [word in pair or word for word in right]:
        return True
    rests = [{word for word in words if word.lower() not in pair and not is_unit(word)} for words in texts]
    is_open = any(word.lower() in _UNDECIDED or re.fullmatch("[A-Z][a-z]+", word) for word in rests[0] | rests[1])
    return not is_open and (rests[0] <= rests[1] or rests[1] <= rests[0])


def _is_fall(text: str, other: str, is_same: Callable[[str, str], bool]) -> bool:
    """Return whether a text such as `5% decrease` names the negative number that is the other one."""
    amount, count = _FALL.subn(" ", text)
    is_number = count == 1 and "-" not in amount and (is_quantity(amount) or not re.search("[A-Za-z]", amount))
    return is_number and other.startswith("-") and is_same(f"-{amount.strip()}", other)


def _without_directions(gold: str, answer: str) -> tuple[str, str]:
    rests = split_directions(gold)[0], split_directions(answer)[0]
    return rests if all(re.search(r"\d", text) for text in rests) else (gold, answer)


def _are_equal_values(gold: str, answer: str, parse: Parse, verify: Verify) -> bool | None:
    gold, answer = as_given = _LG.sub(r"\\log_{10}", gold), _LG.sub(r"\\log_{10}", answer)
    gold, answer = as_latex(gold), as_latex(answer)
    by_text = compare_texts(gold, answer)
    if by_text is not None:
        return by_text
    is_equal = _compute((gold, answer), parse, verify)
    if not is_equal and as_given != (gold, answer):
        is_equal = _compute(as_given, parse, verify)
    if not is_equal and all(map(_LOG.search, (gold, answer))):
        return _compute((_LOG.sub(r"\\ln", gold), _LOG.sub(r"\\ln", answer)), parse, verify)
    if not is_equal and r"\log_{10}" in gold + answer and any(map(_COMMON_LOG.search, (gold, answer))):
        return _compute((_COMMON_LOG.sub(r"\\log_{10}", gold), _COMMON_LOG.sub(r"\\log_{10}", answer)), parse, verify)
    return is_equal


def without_markup(text: str) -> str:
    r"""Return an answer without Markdown, fonts, colors, full-width signs and a sign at its end; `2 3/4` as a sum."""
    text = _COLOR.sub("", _with_plain_signs(text)).strip()
    before = ""
    while text != before:
        before, text = text, _ENDS.sub("", text).strip()
        matches = (re.fullmatch(pattern, text, re.DOTALL) for pattern in _WRAPPED)
        contents = (match[match.lastindex or 0] for match in matches if match is not None)
        text = next((content.strip() for content in contents if _closes_at_end(content)), text)
    text = _BELOW_ZERO.sub(r"-\1\2", _PLAIN_NAME.sub(lambda match: f"\\{match[0]} ", text))
    text = re.sub(r"(?<=\d)\^\s*\{?\s*\\text\s*\{(?:st|nd|rd|th)\}\s*\}?", "", text.replace("{:}", ":"))
    text = re.sub(r"\*\*\s*(-?\d+)", r"^{\1}", re.sub(r"(?<=\d)\s*[xX]\s*(?=10\s*(?:\^|\*\*))", r"\\times ", text))
    text = with_repeating_decimals(text)
    text = with_decimal_numerals(re.sub(r"\^(-\d+)", r"^{\1}", text))
    text = re.sub(r"(?<=\d)\s+(?=\d)", ", ", text) if re.fullmatch(r"\d+(?:\s+\d+){2,}", text) else text
    return with_mixed_numbers(_GROUPED.sub(lambda match: re.sub(r"\D", "", match[0]), text))


def _with_plain_signs(text: str) -> str:
    """Return the text with fractions, units and currencies of one sign written out."""
    text = re.sub(r"(\d+)\u2044(\d+)", r"\\frac{\1}{\2}", text.translate(_FULL_WIDTH)).translate(_FRACTIONS)
    for command, sign in _CURRENCY_COMMANDS.items():
        text = re.sub(rf"\\(?:text)?{command}(?![A-Za-z])(?:\{{\}})?", sign, text)
    return _UNIT_SIGNS.sub(lambda match: unicodedata.normalize("NFKC", match[0]), text).replace("\u2212", "-")


def _closes_at_end(text: str) -> bool:
    depths = list(accumulate((char == "{") - (char == "}") for char in text))
    return not depths or min(depths) >= 0 == depths[-1]


def _compute(texts: tuple[str, str], parse: Parse, verify: Verify) -> bool | None:
    gold, answer = (ELLIPSIS.sub(r"Z_{98}", text) for text in with_intervals(*texts))
    if re.match(r"[-+.\d]", gold) and gold.casefold() == answer.casefold():
        gold, answer = _with_units_alike(gold, answer)
    mixed = _in_both_cases(gold) | _in_both_cases(answer)
    mixed |= _in_both_cases(f"{_NAME.sub('', gold)} {_NAME.sub('', answer)}") - {"I"}  # sympy's imaginary unit
    parsed_gold, parsed = (parse(_rename(text, mixed)) for text in (gold, answer))
    if not parsed:
        return None
    has_percent = "%" in gold + answer  # 28% and 28 are the same answer to Math-Verify
    if verify(parsed_gold, parsed):
        return has_percent or not _differ_as_numbers(parsed_gold, parsed)
    return _are_same_numbers(parsed_gold, parsed)


def _with_units_alike(gold: str, answer: str) -> tuple[str, str]:
    """Return two answers that differ only in case with units as one of them writes them: 60 kw is 60 kW."""
    words = [_COUNTED_WORD.findall(text) for text in (gold, answer)]
    for word, other in zip(*words, strict=False):
        unit = word if is_unit(word) else other
        if is_unit(unit):
            gold, answer = gold.replace(word, unit), answer.replace(other, unit)
    return gold, answer


def as_latex(text: str) -> str:
    """Return an answer with signs, currency and repeating decimals as LaTeX that Math-Verify reads."""
    text = _DASH.sub(r"\1-", with_plain_digits(_with_plain_signs(text)))
    text = _ROOT.sub(lambda match: rf"\sqrt{{{match[1] or match[2]}}}", text)
    for sign, latex in _SIGNS.items():
        text = text.replace(sign, latex)
    text = _DOTTED.sub(r"\1\\overline{\2\3\4}", text)
    text = re.sub(r"(?<=\d)\.\((\d+)\)(?![\w(])", r".\\overline{\1}", text)
    text = _POWER.sub(r"\1\\times 10^{\2\3}", text)
    return _REPEATING.sub(_as_fraction, _CURRENCY.sub("", text)).strip()


def _as_fraction(match: re.Match[str]) -> str:
    whole, fixed, repeated = match.groups()
    base = 10 ** len(fixed)
    value = Fraction(int(whole or 0)) + Fraction(int(fixed or 0), base)
    value += Fraction(int(repeated), base * (10 ** len(repeated) - 1))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _in_both_cases(text: str) -> set[str]:
    """Return the capital letters that stand for a symbol next to their small ones."""
    letters = {match["letter"] for match in _LETTER.finditer(text) if match["letter"]}
    return {letter for letter in letters if letter.lower() in letters - {letter}}


def _rename(text: str, letters: set[str]) -> str:
    """Return the text with each of these capital letters as a symbol of its own: Math-Verify lowers all letters."""
    text = _LETTER.sub(lambda match: f"{match[0]}_{{99}}" if match["letter"] in letters else match[0], text)
    return re.sub(r"_\{99\}_(?:\{([^{}]*)\}|(\w))", r"_{99\1\2}", text)


def _differ_as_numbers(gold: list[Any], answer: list[Any]) -> bool:
    """Return whether both are numbers that differ by more than Math-Verify's rounding should hide."""
    values = [_value(parsed[0]) for parsed in (gold, answer) if parsed]
    if len(values) < 2 or values[0] is None or values[1] is None:
        return False
    left, right = values
    return bool(abs(left - right) > RELATIVE_TOLERANCE * max(abs(left), abs(right)))


def _are_same_numbers(gold: list[Any], answer: list[Any]) -> bool:
    """Return whether both are one number with `i` as the imaginary unit: Math-Verify takes it for a variable."""
    if not gold or not answer:
        return False
    both = [_with_imaginary_unit(parsed[0]) for parsed in (gold, answer)]
    left, right = map(_value, both)
    if left is None or right is None:
        return False
    exact = [expression.doit() for expression in both]
    if all(value.is_Rational for value in exact):
        return bool(exact[0] == exact[1])
    return bool(abs(left - right) <= COMPUTED_TOLERANCE * max(abs(left), abs(right)))


def _with_imaginary_unit(expression: Any) -> Any:  # noqa: ANN401 - sympy's expressions
    from sympy import I

    names = [symbol for symbol in getattr(expression, "free_symbols", ()) if symbol.name == "i"]
    return expression.subs(dict.fromkeys(names, I)) if names else expression


def _value(expression: Any) -> Any:  # noqa: ANN401 - sympy's numbers
    try:
        value = expression.doit().evalf(30) if expression.is_number else None
        return value if value is not None and value.is_finite else None
    except (AttributeError, TypeError, ValueError):
        return None
