"""Multiple-choice answers: a label in the box, never a guess from prose."""

import re

from jobs.grading.boxes import last_boxed
from jobs.grading.outcomes import Outcome

_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|bf|rm)\s*\{([^{}]*)\}")
_BARE = re.compile(r"\(?\s*([A-Ja-j1-9])\s*[).:]?")
_ANSWER = re.compile(r"(?i)^(?:final\s+)?answer\s*:?\s*")
_ANSWER_LINE = re.compile(r"^[ \t*]*(?:FINAL )?ANSWER[ \t]*:[ \t*]*\(?([A-Ja-j1-9])\)?[.):]?[ \t*]*$", re.MULTILINE)
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


def grade_choice_leniently(gold: str, response: str) -> Outcome:
    r"""Compare labels as people mean them: `ANSWER: C` inside a box or as a line of its own, and digits for letters.

    The box counts before the line; if both are there and differ, no one answer was given.
    """
    boxed = last_boxed(response)
    in_box = None if boxed is None else read_choice(_ANSWER.sub("", boxed.strip()))
    lines = _ANSWER_LINE.findall(response)
    in_line = lines[-1].upper() if lines else None
    choice = in_box or in_line
    if choice is None or (in_line is not None and _letter(choice) != _letter(in_line)):
        return Outcome.UNPARSED
    return Outcome.CORRECT if _letter(choice) == _letter(gold.strip().upper()) else Outcome.WRONG


def _letter(label: str) -> str:
    """Return the letter of a label: 1 is A."""
    return chr(ord("A") + int(label) - 1) if label.isdigit() else label
