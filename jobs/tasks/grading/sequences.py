r"""Answers with an ellipsis, such as `1, 2, \ldots, 10`: what is left and right of it is compared in order."""

import re
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from exgrpo.jobs.tasks.grading.boxed_answers import plain_form

ELLIPSIS = re.compile(r"\\[lc]?dots(?:[bcimo](?![a-z]))?|\\?\.\s?\.\s?\.|…")
_REPEATED = re.compile(rf"(?<=\d\.)(\d*?)(?:(\d)\2{{2,}}|(\d{{2,}}?)\3+)(?:{ELLIPSIS.pattern})$")
"""Digits that repeat: one at least three times, several at least twice."""
_SUM = re.compile(rf"[+-]\s*(?:{ELLIPSIS.pattern})|(?:{ELLIPSIS.pattern})\s*[+-]")
_EDGE = r"(?:\\(?:cdot|times)(?![a-z])|[\s,;*])+"
_AROUND = re.compile(rf"\\(?:left|right)(?![a-z])|^{_EDGE}|{_EDGE}$")


def with_repeating_decimals(text: str) -> str:
    r"""Return `0.1666\ldots` as `0.1\overline{6}`."""
    return _REPEATED.sub(r"\1\\overline{\2\3}", text)


def compare_sequences(gold: str, answer: str, is_same: Callable[[str, str], bool]) -> bool | None:
    """Return whether answers with an ellipsis agree; None if neither has one, or if it is a term of a sum."""
    left, right = ELLIPSIS.split(gold), ELLIPSIS.split(answer)
    if len(left) != len(right):
        return False
    if len(left) == 1 or any(map(_num_open, map(_bare, left + right))) or (_SUM.search(gold) and _SUM.search(answer)):
        return None
    # Terms may be added next to the ellipsis: after those on its left, and before those on its right.
    tails = [[_terms(text)[::-1] for text in texts[1:]] for texts in (left, right)]
    return _agree(_terms(left[0]), _terms(right[0]), is_same) and all(
        _agree(mine, other, is_same) for mine, other in zip(*tails, strict=True)
    )


def _bare(text: str) -> str:
    """Return a part without the separators at its ends and without the bracket of the whole list."""
    text = _AROUND.sub("", text)
    if _num_open(text) > 0:
        return re.sub(r"^\\?[({\[]\s*", "", text)
    return re.sub(r"\s*\\?[)}\]]$", "", text) if _num_open(text) < 0 else text


def _num_open(text: str) -> int:
    return len(re.findall(r"[({\[]", text)) - len(re.findall(r"[)}\]]", text))


def _terms(text: str) -> list[str]:
    return [term for part in re.split(r"(?<!\\)[,;](?![^({\[]*[)}\]])", _bare(text)) if (term := part.strip())]


def _agree(terms: list[str], others: list[str], is_same: Callable[[str, str], bool]) -> bool:
    """Return whether the longer list is the shorter one with further terms of its arithmetic progression."""
    short, long = sorted((terms, others), key=len)
    if len(short) == len(long) or not short:
        return len(short) == len(long) and all(map(is_same, terms, others))
    try:
        numbers = [Fraction(plain_form(term)) for term in long]
    except (ValueError, ZeroDivisionError):
        return False
    steps = {after - before for before, after in pairwise(numbers)}
    return len(steps) == 1 and (len(short) > 1 or steps <= {1, -1}) and all(map(is_same, short, long))
