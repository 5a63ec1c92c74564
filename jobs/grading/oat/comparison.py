"""Whether an answer equals the gold answer by the published rules. Runs inside the grading process."""

import re
from collections.abc import Callable
from itertools import pairwise

import sympy

from jobs.grading.oat.expressions import ExpressionError, read_expression
from jobs.grading.oat.normalization import is_whole, normalize_first, normalize_second, strip_thousands

LONG_CHARS = 128
REPEATED_SHARE = 0.2
MAX_LETTERS = 2
_BRACKETS = "()[]"
_FRACTION = re.compile(r"^-?[0-9]+.?/0*[1-9][0-9]*.?$")
_POWERS_LEFT_ALONE = re.compile(r"\^\{|\^\(|\^[0-9]+\^|\^[0-9][0-9]+")


def equals_by_published_rules(gold: str, answer: str, verify: Callable[[str, str], bool]) -> bool:
    """Return whether texts, numbers or formulas agree, or Math-Verify (`verify`) says so: the slow mode of the rules.

    Raises:
        RecursionError: The answer is nested too deeply.
        MemoryError: It takes too much memory.
    """
    if normalize_first(gold) == normalize_first(answer):
        return True
    second_gold, second_answer = normalize_second(gold), normalize_second(answer)
    if second_gold == second_answer or _parts_agree(second_gold, second_answer):
        return True
    if _repeats(answer) or _repeats(gold):
        return False
    return verify(_in_math(gold), _in_math(answer))


def _parts_agree(gold: str, answer: str) -> bool:
    if not answer:
        return False
    gold_parts, answer_parts = _split_tuple(gold), _split_tuple(answer)
    if len(gold_parts) != len(answer_parts):
        return False
    if len(gold_parts) > 1 and (gold[0] != answer[0] or gold[-1] != answer[-1]):
        return False
    pairs = list(zip(gold_parts, answer_parts, strict=True))
    return bool(pairs) and all(_part_agrees(*pair) for pair in pairs)


def _part_agrees(gold: str, answer: str) -> bool:
    if _FRACTION.search(gold) and _FRACTION.search(answer):
        return gold == answer  # a fraction has to be reduced
    if is_whole(gold) != is_whole(answer):
        return False  # a whole number has to be given as one
    return _formulas_agree(gold, answer)


def _formulas_agree(gold: str, answer: str) -> bool:
    both = f"({gold})-({answer})"
    letters = {letter for letter in both.replace("sqrt", "").replace("frac", "") if letter.isalpha()}
    if len(letters) > MAX_LETTERS or _POWERS_LEFT_ALONE.search(both):
        return False
    try:
        return bool(sympy.simplify(read_expression(both)) == 0)
    except RecursionError:
        raise
    except (ExpressionError, ArithmeticError, TypeError, ValueError, AttributeError, RuntimeError):
        return False  # what sympy raises on formulas without a value


def _split_tuple(text: str) -> list[str]:
    text = strip_thousands(text)
    if not text:
        return []
    is_tuple = len(text) > 2 and text[0] in _BRACKETS and text[-1] in _BRACKETS
    if is_tuple and not any(letter in _BRACKETS for letter in text[1:-1]):
        return [part.strip() for part in text[1:-1].split(",")]
    return [text]


def _repeats(text: str) -> bool:
    """Return whether a long text mostly repeats itself: common beginnings of neighbouring suffixes, over all pairs."""
    num_chars = len(text)
    if num_chars <= LONG_CHARS:
        return False
    suffixes = sorted(text[start:] for start in range(num_chars))
    shared = sum(_num_shared(left, right) for left, right in pairwise(suffixes))
    return shared * 2 / (num_chars * (num_chars + 1)) > REPEATED_SHARE


def _num_shared(left: str, right: str) -> int:
    pairs = enumerate(zip(left, right, strict=False))
    return next((item for item, (one, other) in pairs if one != other), min(len(left), len(right)))


def _in_math(text: str) -> str:
    return text if "$" in text else f"${text}$"
