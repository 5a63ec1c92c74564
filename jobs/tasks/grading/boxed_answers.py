r"""The answer in a response, the content of its last `\boxed{...}`, and what can be decided of it without Math-Verify.

A choice is a label in the box, never a guess from prose.
"""

import re
from fractions import Fraction

from exgrpo.jobs.tasks.grading.number_words import counted_numbers
from exgrpo.jobs.tasks.grading.reward_function import Grade

_MARKS = re.compile(r"(?P<box>\\{1,2}boxed\s{0,8}\{)|\\.|[{}]", re.DOTALL)
_WRAPPER = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mathit|bf|rm)\s*\{([^{}]*)\}")
_BARE = re.compile(r"\(?\s*([A-Ja-j1-9])\s*[).:]?")
_WITH_OPTION = re.compile(r"(?:\(([A-J1-9])\)|([A-J1-9])[).:])\s+\S.*", re.DOTALL)
_INVISIBLE = re.compile(r"\\[,!]|\\(?:left|right)(?![A-Za-z])|\$")
_SPACE = re.compile(r"(?<!\d)\s+|\s+(?!\d)")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?P<sign>,|\{,\}|\s|\\ |~)\d{3}(?:(?P=sign)\d{3})*")
_NUMBER = re.compile(r"[+-]?\d{1,400}(?:\.\d{0,400})?(?:[eE][+-]?\d{1,3})?")
_FRACTION = re.compile(r"(-?)(?:\\[dt]?frac\{?(\d{1,400})\}?\{?(\d{1,400})\}?|(\d{1,400})/(\d{1,400}))")
_JOINT = re.compile(
    r"(?:[\s,;&$~]|\\[()\[\],;!]|\\q?quad(?![a-z])|\band\b|\bor\b|\\text\{\s*(?:and|or|,)\s*\}|[a-z](?:_\{?\d\}?)?\s*=){1,40}"
)
"""What may be between two boxes of one answer."""
THINK_END = "</think>"


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` with balanced braces, or None; linear in the text's length.

    Escaped braces are content; a doubly escaped `\\boxed{` is a box too. Of nested boxes the inner one counts; a box
    that never closes does not.
    """
    boxes = _closed_boxes(text)
    return None if not boxes else text[boxes[-1][1] : boxes[-1][2]]


def joined_boxes(text: str) -> str | None:
    r"""Return the last box, with the boxes before it that only commas, signs or `and` and `or` part from it.

    `\boxed{(2,2)} \text{ and } \boxed{(6,2)}` is `(2,2), (6,2)`: one answer, as Math-Verify reads it.
    """
    return ", ".join(contents) if (contents := _joined_contents(text)) else None


def boxed_choice(text: str) -> str | None:
    """Return the last box, or all that are joined if they hold several labels, which is no choice."""
    contents = _joined_contents(text)
    return contents[-1] if contents and len({*map(read_choice, contents)}) == 1 else joined_boxes(text)


def _joined_contents(text: str) -> list[str]:
    boxes = _closed_boxes(text)
    first = max(0, len(boxes) - 1)
    while first and _are_joined(text[boxes[first - 1][2] + 1 : boxes[first][0]]):
        first -= 1
    return [*dict.fromkeys(text[start:end] for _, start, end in boxes[first:])]


def _are_joined(between: str) -> bool:
    return re.search(r"[,;=]|and|or", between) is not None and _JOINT.fullmatch(between) is not None


def _closed_boxes(text: str) -> list[tuple[int, int, int]]:
    """Return for each box that closes and holds no other one where it begins, and where its content begins and ends."""
    open_places: list[tuple[int, int] | None] = []
    boxes: list[tuple[int, int, int]] = []
    for mark in _MARKS.finditer(text):
        token = mark.group()
        if mark.lastgroup == "box":
            open_places.append((mark.start(), mark.end()))
        elif token == "{":
            open_places.append(None)
        elif token == "}" and open_places:
            place = open_places.pop()
            if place is not None and (not boxes or place[0] > boxes[-1][0]):
                boxes.append((*place, mark.start()))
    return boxes


def last_boxed_as_published(text: str) -> str | None:
    r"""Return what the published rules take for the answer: the last `\boxed{`, to the brace that closes it, or None.

    Unlike `last_boxed`, escaped braces count as braces, and a last box that never closes hides those before it.
    """
    start = text.rfind("\\boxed")
    if start < 0 or not text.startswith("\\boxed{", start):
        return None
    content = start + len("\\boxed{")
    depth = 1
    for match in re.compile(r"[{}]").finditer(text, content):
        depth += 1 if match.group() == "{" else -1
        if depth == 0:
            return text[content : match.start()]
    return None


def read_choice(boxed: str) -> str | None:
    """Return the label that a box holds (`B`, `(B)`, `b.`, `Option B`, `B) the option's text`), upper case, or None."""
    content = _WRAPPER.sub(r"\1", boxed).replace("$", "").replace("\\", "").strip()
    content = re.sub(r"^(?:option|choice)\s+(?=\W?[A-J1-9]\b)", "", content, flags=re.IGNORECASE)
    bare = _BARE.fullmatch(content)
    if bare is not None:
        return bare.group(1).upper()
    labelled = _WITH_OPTION.fullmatch(content)
    return None if labelled is None else labelled.group(1) or labelled.group(2)


def grade_choice(gold: str, boxed: str) -> Grade:
    """Compare the box's label with the gold label."""
    choice = read_choice(boxed)
    if choice is None:
        return Grade.UNPARSED
    return Grade.CORRECT if choice == gold.strip().upper() else Grade.WRONG


def grade_without_verifier(gold: str, boxed: str) -> Grade | None:
    """Return the outcome where texts are equal or both are plain numbers, else None: Math-Verify has to decide."""
    if not boxed.strip():
        return Grade.UNPARSED
    left, right = _normalize(gold), _normalize(boxed)
    if left == right:
        return Grade.CORRECT
    gold, boxed = counted_numbers(gold, boxed) or (gold, boxed)
    gold_number, number = _read_number(gold), _read_number(boxed)
    if gold_number is None or number is None:
        return None
    if gold_number == number:
        return Grade.CORRECT
    are_whole = gold_number.denominator == 1 and number.denominator == 1
    return Grade.WRONG if are_whole else None


def _normalize(text: str) -> str:
    # A space between digits stays: 3 1/2 is not 31/2.
    bare = _SPACE.sub("", _INVISIBLE.sub("", text)).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return bare.removesuffix(".")


def plain_form(boxed: str) -> str:
    """Return one text for boxes that plainly say the same: numbers, labels of choices, and texts without spaces."""
    bare = _normalize(_WRAPPER.sub(r"\1", boxed))
    number, fraction = _read_number(bare), _FRACTION.fullmatch(bare)
    if fraction and number is None:
        sign, *parts = (part for part in fraction.groups() if part is not None)
        number = Fraction(int(sign + parts[0]), int(parts[1])) if int(parts[1]) else None
    return str(number) if number is not None else read_choice(boxed) or bare


def _read_number(text: str) -> Fraction | None:
    # A space behind a comma stays: 32, 349 is not 32,349.
    bare = _INVISIBLE.sub("", text).strip()
    thousands = _THOUSANDS.fullmatch(bare.removesuffix("."))
    plain = bare.replace(thousands["sign"], "") if thousands else bare
    return Fraction(plain.removesuffix(".")) if _NUMBER.fullmatch(plain) else None


def closes_thought(response: str) -> bool:
    """Return whether the response closes its thought; the authors reward no other one (not on Llama base)."""
    return THINK_END in response
