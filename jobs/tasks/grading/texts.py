"""Answers that are texts: labels of options, words, points, sets by their names, and numbers of programs."""

import re
from collections import Counter
from itertools import accumulate

from exgrpo.jobs.tasks.grading.boxed_answers import read_choice
from exgrpo.jobs.tasks.grading.lists import WORDS, compare_lists
from exgrpo.jobs.tasks.grading.plain_text import TEXT_COMMAND

_ARTICLE = re.compile(r"^(?:an?|the)\s+(?=[a-z]{3})", re.IGNORECASE)
_POINTS = re.compile(
    r"\\(angle|triangle|overline|overrightarrow|overleftrightarrow|widehat)\s*\{?\s*([A-Z]{2,5})\s*\}?"
)
_COMPUTER_NUMBER = re.compile(r"0[xX][0-9A-Fa-f]+|0[bB][01]+|0[oO][0-7]+")
_LITERAL = tuple(map(re.compile, (r"[IVX]{2,}", r"\d+(?:\.\d+){2,}", r"[A-Z](?:\s*\\times\s*[A-Z])+")))
"""Roman numerals, numbers of versions and addresses, and products of sets."""
_ELEMENTS = (
    "H He Li Be B C N O F Ne Na Mg Al Si P S Cl Ar K Ca Sc Ti V Cr Mn Fe Co Ni Cu Zn Ga Ge As Se Br Kr Rb Sr Y Zr "
    "Nb Mo Tc Ru Rh Pd Ag Cd In Sn Sb Te I Xe Cs Ba La Ce Pr Nd Pm Sm Eu Gd Tb Dy Ho Er Tm Yb Lu Hf Ta W Re Os Ir "
    "Pt Au Hg Tl Pb Bi Po At Rn Fr Ra Ac Th Pa U Np Pu Am Cm Bk Cf Es Fm Md No Lr Rf Db Sg Bh Hs Mt Ds Rg Cn Nh Fl "
    "Mc Lv Ts Og"
)
_FORMULA = re.compile(rf"(?:(?:{'|'.join(sorted(_ELEMENTS.split(), key=len, reverse=True))}|[()])[\d+-]*)+")
"""A chemical formula such as CO2."""
_OPERANDS = re.compile(r"[A-Z](?:\s*\\(?:cup|cap)\s*[A-Z])+")
_PRIME = re.compile(r"(?<=[A-Za-z)'}])(?:'|\^\s*\{?(?:\\prime\s*)+\}?)")


def compare_texts(gold: str, answer: str) -> bool | None:
    """Return whether words, points, letters of options or of sets agree; None where both have to be computed."""
    verdicts = (compare(gold, answer) for compare in _COMPARISONS)
    return next((verdict for verdict in verdicts if verdict is not None), None)


def _labels(gold: str, answer: str) -> bool | None:
    pairs = [(gold, answer), (answer, gold)]
    is_label = any(re.fullmatch("[A-J]", one) and len(other) > 1 and read_choice(other) == one for one, other in pairs)
    return is_label or None


def _cases(gold: str, answer: str) -> bool | None:
    """Return False of letters and formulas of chemistry that differ only in case, such as `m` and `M`, or CO and Co.

    It is True of ions of which only one is written with symbols of elements, such as `OH^-` and `Oh^-`.
    """
    left, right = (re.sub(r"[{}_^$\s]", "", re.sub(TEXT_COMMAND, r"\1", text)) for text in (gold, answer))
    if left.casefold() != right.casefold():
        return None
    are_formulas = [_FORMULA.fullmatch(text) is not None for text in (left, right)]
    if any(are_formulas) and re.search("[A-Za-z]{2}.*[+-]$", left):
        return left == right or not all(are_formulas)
    if left == right:
        return None
    if left.casefold() == "no":
        return True
    if len(left) == 1 and left.isalpha():
        return left.upper() in "ABCDEFGHIJ"  # labels of options
    return False if all(are_formulas) else None


def _numbers(gold: str, answer: str) -> bool | None:
    if not any(map(_COMPUTER_NUMBER.fullmatch, (gold, answer))):
        return None
    values = [_read_integer(text) for text in (gold, answer)]
    return None not in values and values[0] == values[1]


def _literals(gold: str, answer: str) -> bool | None:
    """Return False of what Math-Verify takes for equal: it orders factors, and leaves out primes and inner braces."""
    are_literal = any(all(map(pattern.fullmatch, (gold, answer))) for pattern in _LITERAL)
    depths = _depth(gold), _depth(answer)
    is_other = are_literal or _PRIME.sub("", gold) == _PRIME.sub("", answer) or (all(depths) and len({*depths}) > 1)
    return False if is_other and gold != answer else None


def _depth(text: str) -> int:
    r"""Return how deep the sets of a text are nested: 2 for `\{\{1\}, 2\}`."""
    signs = re.findall(r"\\[{}]", text)
    return max(accumulate(1 if sign == r"\{" else -1 for sign in signs), default=0)


def _points(gold: str, answer: str) -> bool | None:
    points = [_POINTS.fullmatch(text) for text in (gold, answer)]
    return _are_same_points(*points[0].groups(), *points[1].groups()) if points[0] and points[1] else None


def _operands(gold: str, answer: str) -> bool | None:
    if not all(map(_OPERANDS.fullmatch, (gold, answer))):
        return None
    signs = {sign for text in (gold, answer) for sign in re.findall(r"\\cup|\\cap", text)}
    return len(signs) == 1 and set(re.findall("[A-Z]", gold)) == set(re.findall("[A-Z]", answer))


def _words(gold: str, answer: str) -> bool | None:
    words = [_ARTICLE.sub("", " ".join(re.sub(TEXT_COMMAND, r"\1", text).split())) for text in (gold, answer)]
    if words[0] == words[1] or (all(WORDS.fullmatch(text) for text in words) and min(map(len, words)) > 1):
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
    items, others = ([_letters(item) for item in re.split("[,;]", text)] for text in (gold, answer))
    left, right = "".join(items), "".join(others)
    if left == right and items != others:
        words = [re.findall("[a-z]+", text.casefold()) for text in (gold, answer)]
        return words[0] == words[1] and max(map(len, words[0])) > 2  # a sentence with other commas
    if left == right:
        return gold == answer or None if max(len(left), len(right)) < 3 else True
    if sorted(left) != sorted(right):
        return None
    # Products of letters commute: xy is yx. Points and words do not.
    if len(items) > 1 or len(others) > 1:
        names = [Counter(item for item in part if len(item) > 3) for part in (items, others)]
        return None if names[0] == names[1] else False
    are_words = len(left) > 3 or (len(left) > 2 and gold.isupper() and answer.isupper())
    return False if are_words else None


def _letters(text: str) -> str:
    return "".join(re.findall("[a-z]+", text.casefold()))


_COMPARISONS = (_labels, _cases, _numbers, _literals, _points, _operands, compare_lists, _words)
