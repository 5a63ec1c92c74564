r"""Finds the answer in a response: the content of its last `\boxed{...}`."""

import re

_MARKS = re.compile(r"(?P<box>\\{1,2}boxed\s{0,8}\{)|\\.|[{}]", re.DOTALL)


def last_boxed(text: str) -> str | None:
    r"""Return the content of the last `\boxed{...}` with balanced braces, or None; linear in the text's length.

    Escaped braces are content; a doubly escaped `\\boxed{` is a box too. Of nested boxes the inner one counts; a box
    that never closes does not.
    """
    open_places: list[int | None] = []
    best: tuple[int, int] | None = None
    for mark in _MARKS.finditer(text):
        token = mark.group()
        if mark.lastgroup == "box":
            open_places.append(mark.end())
        elif token == "{":
            open_places.append(None)
        elif token == "}" and open_places:
            start = open_places.pop()
            if start is not None and (best is None or start > best[0]):
                best = (start, mark.start())
    return None if best is None else text[best[0] : best[1]]


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
