r"""What kind of thing an answer is: a set, a tuple or a list, digits in a base, or a number that words deny."""

import re
from typing import Literal

from jobs.grading.quantities import bare_text, is_enclosed
from jobs.grading.units import split_unit

_BASED = re.compile(r"(?P<digits>-?\d[\dA-F]{0,200})(?:_\{?\s*(?:\\text\{)?(?P<base>\d{1,2})\}{0,2})?")
_SPACES = re.compile(r"\s+")
_NUMBERS = re.compile(r"[\d.,]*\d")
_DENIAL = re.compile(
    r"(?i)\\n(?:eq?|ot)(?![A-Za-z])|≠|(?<![A-Za-z\\])(?:not|no|isn't|never|neither|wrong|incorrect|false)(?![A-Za-z])"
)
_CONDITION = re.compile(r"\\mid|\||:|\\in(?![A-Za-z])")

Form = Literal["set", "tuple", "list"]


def denies_its_number(text: str) -> bool:
    r"""Return whether the last number of a text is denied before or after it: `5 \text{ is wrong}`, `\neq 5`."""
    number, tail = split_unit(bare_text(text))
    parts = _NUMBERS.split(number)
    return any(_DENIAL.search(part) for part in (*parts[-2:], tail))


def form_of(text: str) -> Form | None:
    r"""Return whether parts separated by commas are a set in `\{ \}`, a tuple or without brackets, else None.

    A set that is described by a condition is none of these; an interval is a tuple.
    """
    bare = text_of_list(text)
    is_set = bare.startswith("\\{") and bare.endswith("\\}")
    marked = bare.replace("\\{", "{").replace("\\}", "}")
    if not is_enclosed(marked):
        return "list" if _has_comma(marked) else None
    if not _has_comma(marked[1:-1]) or _CONDITION.search(marked):
        return None
    return "set" if is_set else "tuple" if marked[0] in "([" and marked[-1] in ")]" else None


def text_of_list(text: str) -> str:
    """Return an answer without name, layout, spaces and the braces that only group."""
    bare = _SPACES.sub("", bare_text(text))
    return bare[1:-1] if bare.startswith("{") and bare.endswith("}") and is_enclosed(bare) else bare


def digits_and_base(text: str) -> tuple[str, int | None] | None:
    """Return the digits and the base, None where none is said, of a whole number; None if the text is none."""
    based = _BASED.fullmatch(_SPACES.sub("", bare_text(text)))
    if based is None:
        return None
    digits = re.sub(r"(?<![\dA-F])0+(?=[\dA-F])", "", based["digits"])
    return digits, int(based["base"]) if based["base"] else None


def _has_comma(text: str) -> bool:
    """Return whether a comma stands outside of brackets."""
    depth = 0
    for letter in text:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            return True
    return False
