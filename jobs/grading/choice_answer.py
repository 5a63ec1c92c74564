"""Multiple-choice answers: a label in the box, never a guess from prose."""

import re

from jobs.grading.outcomes import Outcome

_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|bf|rm)\s*\{([^{}]*)\}")
_BARE = re.compile(r"\(?\s*([A-Ja-j1-9])\s*[).:]?")
_WITH_OPTION = re.compile(r"(?:\(([A-J1-9])\)|([A-J1-9])[).:])\s+\S.*", re.DOTALL)


def read_choice(boxed: str) -> str | None:
    """Return the label that a box holds (`B`, `(B)`, `b.`, `B) the option's text`), upper case, or None."""
    content = _WRAPPER.sub(r"\1", boxed).replace("$", "").replace("\\", "").strip()
    bare = _BARE.fullmatch(content)
    if bare is not None:
        return bare.group(1).upper()
    labelled = _WITH_OPTION.fullmatch(content)
    return None if labelled is None else labelled.group(1) or labelled.group(2)


def grade_choice(gold: str, boxed: str | None) -> Outcome:
    """Compare the box's label with the gold label."""
    choice = None if boxed is None else read_choice(boxed)
    if choice is None:
        return Outcome.UNPARSED
    return Outcome.CORRECT if choice == gold.strip().upper() else Outcome.WRONG
