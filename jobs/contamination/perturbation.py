"""The same question with other numbers, which no training data has."""

import random
import re

_NUMBER = re.compile(r"(?<![\w^_.\\])(?<![\^_]\{)[1-9]\d+(?!\w)")
_YEARS = range(1900, 2101)


def with_other_numbers(text: str, rng: random.Random) -> str | None:
    """Return the text with other numbers of as many digits, or None if it has none to change.

    Numbers of two and more digits are changed, equal ones equally; zeros at the end stay, as do years and powers: other
    ones would look odd to any model.
    """
    changed: dict[str, str] = {}
    for number in _NUMBER.findall(text):
        if int(number) not in _YEARS and number not in changed:
            changed[number] = _other_number(number, rng, {*changed, *changed.values()})
    if not changed:
        return None
    return _NUMBER.sub(lambda number: changed.get(number.group(), number.group()), text)


def _other_number(number: str, rng: random.Random, taken: set[str]) -> str:
    """Return another number of as many digits and zeros at the end, if possible not one of those taken."""
    head = number.rstrip("0")
    zeros = number[len(head) :]
    first = 10 ** (len(head) - 1)
    others = [str(value) + zeros for value in _sample_heads(first, rng) if value % 10 and str(value) != head]
    return next((other for other in others if other not in taken), others[0])


def _sample_heads(first: int, rng: random.Random) -> list[int]:
    """Return all numbers of one digit in random order, else some of as many digits as `first`."""
    return rng.sample(range(first, 10 * first), min(9 * first, 60))
