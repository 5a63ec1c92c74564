"""Answers that are lists: values that occur more than once, and words in any order or in one."""

import re
from collections import Counter

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
