r"""Equality of two boxed answers by Math-Verify, and what it gets wrong in ways that can be told for sure.

| Math-Verify alone | Here |
|---|---|
| letters are multiplied: `BAC` = `ABC`, `listen` = `silent` | words, points and numbers such as 0x1F are texts |
| case is lost: `v/V` = 1 | letters that occur in both cases are two symbols |
| numbers are rounded to six decimals: 1e-34 = 1e-33 | equal within a hundred thousandth of their size |
| Unicode signs, currency, `0.\overline{3}`, `1e-05`, `\varnothing` | written as LaTeX first |
| `x<2 or x>3` is no set | written as intervals where the other answer is one |
| units are left out: 5 m = 5 km | compared where both answers name one (`units.py`) |
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

from exgrpo.jobs.tasks.grading.boxed_answers import read_choice
from exgrpo.jobs.tasks.grading.moments import compare_moments
from exgrpo.jobs.tasks.grading.residues import are_same_numerals, compare_residues, with_decimal_numerals
from exgrpo.jobs.tasks.grading.units import (
    TEXT_COMMAND,
    comparable_values,
    have_other_ways,
    is_unit,
    plain_words,
    quantity_lists,
    split_directions,
    with_magnitudes,
    with_mixed_numbers,
    with_plain_digits,
)

RELATIVE_TOLERANCE = 1e-5
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
    r"\{\}": r"\emptyset", r"\degree": r"^\circ",
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
_ENDS = re.compile(r"^(?:\\[;,:! ]|~)|(?:\\[;,:! \\]|~|[;,:。]|(?<=})\.)$")
"""Spaces of LaTeX around an answer, and a sign at its end."""
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
_POWER = re.compile(r"(?<![\w.])(\d+(?:\.\d*)?)[eE]\+?(-?)0*(\d{1,3})(?!\w)")
"""A number as programs write it: 1e-05."""
_WORDS = re.compile(r"[A-Za-z]+(?:[\s-]+[A-Za-z]+)*\.?")
_POINTS = re.compile(
    r"\\(angle|triangle|overline|overrightarrow|overleftrightarrow|widehat)\s*\{?\s*([A-Z]{2,5})\s*\}?"
)
_COMPUTER_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]+|0[bB][01]+|0[oO][0-7]+")
_OPERANDS = re.compile(r"[A-Z](?:\s*\\(?:cup|cap)\s*[A-Z])+")
_LETTER = re.compile(
    r"\\(?:text|mathrm|mathbb|mathbf|operatorname)\s*\{[^{}]*\}|\\[A-Za-z]+|[A-Za-z]{3,}|(?<=\d)[eE](?=[-+\d])|"
    r"(?P<letter>[A-Za-z])"
)
"""A letter that is a symbol by itself, among what is none."""
_DASH = re.compile(r"(^|[=(\[{,+*/<>])\s*[\u2013\u2014]")
"""A dash that is a sign, not a range."""
_ROOT = re.compile(r"√\s*(?:\(([^()]*)\)|(\d+(?:\.\d+)?|[A-Za-z]))")
_SET = re.compile(r"\\cup|[\[(][^,()\[\]]+,[^,()\[\]]+[\])]")
_OPPOSITES = (
    "increase/decrease increased/decreased increases/decreases increasing/decreasing gain/loss profit/loss "
    "before/after early/late earlier/later older/younger faster/slower more/less more/fewer ahead/behind higher/lower "
    "attractive/repulsive tension/compression heavier/lighter taller/shorter longer/shorter closer/farther "
    "maximum/minimum max/min odd/even positive/negative warmer/colder hotter/colder deposit/withdrawal credit/debit "
    "surplus/deficit absorbed/released first/last won/lost inside/outside acute/obtuse convex/concave"
)
_FILLERS = {"a", "an", "and", "at", "by", "in", "is", "it", "of", "percent", "the", "to", "was"}
_UNDECIDED = {"cannot", "neither", "never", "no", "non", "none", "nor", "not", "than", "without"}
"""Words that deny the others, or compare."""
_FALL = re.compile(r"(?:\ban?\s+)?\b(?:decreased?|drop|loss|reduction)\b(?:\s+(?:of|by)\b)?", re.IGNORECASE)
_LATIN = re.compile(r"\\[A-Za-z]+|([A-Za-z]+)")
"""A command of LaTeX, or a word."""
_ORDER = re.compile(r"(<|>|\\(?:leqslant|leq|le|lt|geqslant|geq|ge|gt)(?![a-z]))")
_COMMANDS = re.compile(r"\\(?:infty|d?frac|pi|sqrt)(?![a-z])")
_OR = re.compile(r"\\text\{\s*or\s*\}|\\(?:lor|vee)(?![a-z])|\bor\b")


def are_equal(gold: str, answer: str, parse: Parse, verify: Verify) -> bool | None:
    """Return whether two answers are equal; None where Math-Verify reads nothing in the given one."""
    is_known: bool | None = are_same_numerals(gold, answer)
    gold, answer = without_markup(gold), without_markup(answer)
    large = with_magnitudes(gold), with_magnitudes(answer)
    are_large = [large[0] != gold, large[1] != answer]
    if all(are_large):
        gold, answer = large
    # Else 5 and 5 million are equal too, as are 5 and 5 m.
    is_known = is_known or (any(are_large) and not all(are_large) and are_equal(*large, parse, verify))
    by_text = is_known or _compare_forms(
        gold, answer, lambda left, right: are_equal(left, right, parse, verify) is True
    )
    if by_text is not None:
        return by_text
    gold, answer = _without_directions(gold, answer)
    pairs, have_units = comparable_values(gold, answer)
    if any(_are_equal_values(*pair, parse, verify) for pair in pairs):
        return True
    if have_units:
        return False
    lists = quantity_lists(gold, answer)
    if lists is None:
        return _are_equal_values(gold, answer, parse, verify)
    are_same = [[are_equal(left, right, parse, verify) is True for right in lists[1]] for left in lists[0]]
    if re.match(r"(?:\\left\s*)?\(", gold):
        return all(row[place] for place, row in enumerate(are_same))
    return all(map(any, are_same)) and all(map(any, zip(*are_same, strict=True)))


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
    pairs = [{*pair.split("/")} for pair in _OPPOSITES.split()]
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
    is_number = count == 1 and not re.search("[A-Za-z-]", amount)
    return is_number and other.startswith("-") and is_same(f"-{amount.strip()}", other)


def _without_directions(gold: str, answer: str) -> tuple[str, str]:
    rests = split_directions(gold)[0], split_directions(answer)[0]
    return rests if all(re.search(r"\d", text) for text in rests) else (gold, answer)


def _are_equal_values(gold: str, answer: str, parse: Parse, verify: Verify) -> bool | None:
    gold, answer = as_given = _LG.sub(r"\\log_{10}", gold), _LG.sub(r"\\log_{10}", answer)
    gold, answer = as_latex(gold), as_latex(answer)
    by_text = _compare_texts(gold, answer)
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
    text = with_decimal_numerals(text)
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
    gold, answer = texts
    gold, answer = _with_intervals(gold, answer), _with_intervals(answer, gold)
    mixed = _in_both_cases(gold) | _in_both_cases(answer)
    parsed_gold, parsed = (parse(_rename(text, mixed)) for text in (gold, answer))
    if not parsed:
        return None
    has_percent = "%" in gold + answer  # 28% and 28 are the same answer to Math-Verify
    return verify(parsed_gold, parsed) and (has_percent or not _differ_as_numbers(parsed_gold, parsed))


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


def _compare_texts(gold: str, answer: str) -> bool | None:
    """Return whether words, points, letters of options or of sets agree; None where both have to be computed."""
    if re.fullmatch(r"[A-J]", gold) and len(answer) > 1 and read_choice(answer) == gold:
        return True
    computer_numbers = [_COMPUTER_NUMBER.fullmatch(text) for text in (gold, answer)]
    if any(computer_numbers):
        values = [_read_integer(text) for text in (gold, answer)]
        return None not in values and values[0] == values[1]
    points = [_POINTS.fullmatch(text) for text in (gold, answer)]
    if points[0] and points[1]:
        return _are_same_points(*points[0].groups(), *points[1].groups())
    if _OPERANDS.fullmatch(gold) and _OPERANDS.fullmatch(answer):
        signs = {sign for text in (gold, answer) for sign in re.findall(r"\\cup|\\cap", text)}
        return len(signs) == 1 and set(re.findall("[A-Z]", gold)) == set(re.findall("[A-Z]", answer))
    words = [" ".join(re.sub(TEXT_COMMAND, r"\1", text).split()) for text in (gold, answer)]
    if words[0] == words[1] or (all(_WORDS.fullmatch(text) for text in words) and min(map(len, words)) > 1):
        return _are_same_words(*words)
    return None


def _read_integer(text: str) -> int | None:
    try:
        return int(text, 0)
    except ValueError:
        return None


def _are_same_points(kind: str, points: str, other_kind: str, other: str) -> bool:
    if kind != other_kind:
        return False
    if kind == "triangle":
        return sorted(points) == sorted(other)
    return points == other or (kind != "overrightarrow" and points == other[::-1])


def _are_same_words(gold: str, answer: str) -> bool | None:
    left, right = ("".join(text.casefold().split()).removesuffix(".") for text in (gold, answer))
    if left == right:
        return gold == answer or None if max(len(left), len(right)) < 3 else True
    # Products of letters commute: xy is yx. Points and words do not.
    is_anagram = sorted(left) == sorted(right)
    are_words = len(left) > 3 or (len(left) > 2 and gold.isupper() and answer.isupper())
    return False if is_anagram and are_words else None


def _in_both_cases(text: str) -> set[str]:
    """Return the capital letters that stand for a symbol next to their small ones."""
    letters = {match["letter"] for match in _LETTER.finditer(text) if match["letter"]}
    return {letter for letter in letters if letter.isupper() and letter.lower() in letters}


def _rename(text: str, letters: set[str]) -> str:
    """Return the text with each of these capital letters as a symbol of its own: Math-Verify lowers all letters."""
    return _LETTER.sub(lambda match: f"{match[0]}_{{99}}" if match["letter"] in letters else match[0], text)


def _with_intervals(text: str, other: str) -> str:
    """Return inequalities of one variable as intervals where the other answer is one, any other text unchanged."""
    if not _SET.search(other) or r"\in" in other.replace(r"\infty", "") or not _ORDER.search(text):
        return text
    intervals = [_interval(part) for part in _OR.split(text)]
    return r"\cup ".join(item for item in intervals if item) if all(intervals) else text


def _interval(text: str) -> str | None:
    """Return `x < 2` or `1 < x < 2` as an interval, None where it is neither."""
    parts = [part.strip() for part in _ORDER.split(text)]
    numbers, orders = parts[::2], parts[1::2]
    variables = [index for index, part in enumerate(numbers) if re.fullmatch("[a-z]", part)]
    others = [_COMMANDS.sub("", part) for index, part in enumerate(numbers) if index not in variables]
    if len(variables) != 1 or not all(others) or any(re.search("[A-Za-z,]", part) for part in others):
        return None
    is_less = ["<" in order or order.startswith(r"\l") for order in orders]
    is_open = [order in {"<", ">", r"\lt", r"\gt"} for order in orders]
    if len(numbers) == 3 and variables == [1] and is_less == [True, True]:
        return _bounds(numbers[0], numbers[2], is_open[0], is_open[1])
    if len(numbers) != 2:
        return None
    value = numbers[1 - variables[0]]
    if is_less[0] == (variables[0] == 0):
        return _bounds(r"-\infty", value, True, is_open[0])
    return _bounds(value, r"\infty", is_open[0], True)


def _bounds(low: str, high: str, is_left_open: bool, is_right_open: bool) -> str:
    return f"{'(' if is_left_open else '['}{low},{high}{')' if is_right_open else ']'}"


def _differ_as_numbers(gold: list[Any], answer: list[Any]) -> bool:
    """Return whether both are numbers that differ by more than Math-Verify's rounding should hide."""
    values = [_value(parsed[0]) for parsed in (gold, answer) if parsed]
    if len(values) < 2 or values[0] is None or values[1] is None:
        return False
    left, right = values
    return bool(abs(left - right) > RELATIVE_TOLERANCE * max(abs(left), abs(right)))


def _value(expression: Any) -> Any:  # noqa: ANN401 - sympy's numbers
    try:
        value = expression.doit().evalf(30) if expression.is_number else None
        return value if value is not None and value.is_finite else None
    except (AttributeError, TypeError, ValueError):
        return None
