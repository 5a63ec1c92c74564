"""Answers that are lists: values that occur more than once, words in any order or in one, and progressions."""

import re
from collections import Counter
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise

from exgrpo.jobs.tasks.grading.boxed_answers import plain_form
from exgrpo.jobs.tasks.grading.plain_text import COMMA, TEXT_COMMAND, split_directions

WORDS = re.compile(r"[A-Za-z]+(?:[\s,;-]+[A-Za-z]+)*\.?")
OPPOSITES = (
    "increase/decrease increased/decreased increases/decreases increasing/decreasing gain/loss profit/loss "
    "before/after early/late earlier/later older/younger faster/slower more/less more/fewer ahead/behind higher/lower "
    "attractive/repulsive tension/compression heavier/lighter taller/shorter longer/shorter closer/farther "
    "maximum/minimum max/min odd/even positive/negative warmer/colder hotter/colder deposit/withdrawal credit/debit "
    "surplus/deficit absorbed/released first/last won/lost inside/outside acute/obtuse convex/concave"
)
_IN_ORDER = re.compile(
    rf"\b(?:{re.sub('[ /]', '|', OPPOSITES)}|yes|no|true|false|always|sometimes|never|then|next|finally|same|different|"
    r"high|low|hot|cold|warm|cool|long|short|large|small|larger|smaller|greater|fast|slow|top|bottom|on|off|heads|tails|"
    r"second|third|(?:fif|six|twelf|eigh|nin|four|seven|eleven|hundred|thousand|\w*ten|\w+teen|\w+tie)th|fell|"
    r"(?:ris|clos|los|rais|releas|reduc|converg|diverg)(?:e[sd]?|ing|ent)|"
    r"(?:fall|grow|drop|shrink|expand|contract|gain|win|open|start|end|stop|absorb|accept|reject)(?:s|ed|en|ing)?)\b"
)
"""Words that answer several questions or tell an order: they are no names."""
_DENIAL = re.compile(r"\b(?:un|non-?|in|im|ir|il|dis)(?=\w{3})")
_BOUNDARY = re.compile(rf"(?<!\\)(?:{COMMA.pattern}|;)|[{{}}()\[\]]")
_NAMES = re.compile(r"(?:[A-Za-z](?:_\{?\w+\}?)?\s*=\s*)+(?=[^=]+$)")
_ENCLOSED = re.compile(r"[()\[\]&]|\\[{\\]|\\(?:begin|pm|mp)(?![a-z])")
"""What may hold several values without a comma that is outside all brackets."""


def compare_lists(gold: str, answer: str) -> bool | None:
    """Return whether two lists of words agree, of names in any order; of all other texts False or None.

    It is False if the gold answer names a value several times, and the answer names fewer or more values, or if both
    name as many values, but one of them not as often as the other list does.
    """
    texts = [re.sub(TEXT_COMMAND, r" \1 ", text) for text in (gold, answer)]
    left, right = map(list_items, texts)
    counts, other_counts = (Counter(plain_form(item.casefold()) for item in items) for items in (left, right))
    if len(left) != len(right):
        enclosed = [_ENCLOSED.search(text) is not None for text in texts]
        is_open = enclosed[0] != enclosed[1] or (enclosed[0] and min(len(left), len(right)) < 2)
        return False if len(counts) < len(left) and not is_open else None
    if counts != other_counts:
        return False if counts.keys() == other_counts.keys() else None
    if len(left) < 2 or not all(map(WORDS.fullmatch, left)):
        return None
    words = [[item.casefold().rstrip(".") for item in items] for items in (left, right)]
    return words[0] == words[1] or not any(map(_is_in_order, left, [words[0]] * len(left)))


def _is_in_order(item: str, words: list[str]) -> bool:
    """Return whether an item of a list is no name: its place tells what it answers."""
    word = item.casefold()
    is_opposite = (positive := _DENIAL.sub("", word)) != word and positive in words
    return is_opposite or _IN_ORDER.search(word) is not None or bool(split_directions(item)[1])


def list_items(text: str) -> list[str]:
    """Return the values that commas, semicolons or `and` part outside all brackets; `x = y = 3` names 3 twice."""
    places, depth = [0], 0
    for match in _BOUNDARY.finditer(text):
        if match[0] in "{([":
            depth += 1
        elif match[0] in "})]":
            depth -= 1
        elif depth == 0:
            places += match.span()
        if depth < 0:
            return [text]
    parts = [text[start:end].strip() for start, end in zip(places[::2], [*places[1::2], len(text)], strict=True)]
    names = [_NAMES.match(part) for part in parts]
    counted = [
        (part[match.end() :], match[0].count("=")) if match else (part, 1)
        for part, match in zip(parts, names, strict=True)
    ]
    return [part for part, count in counted for _ in range(count) if part]


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
