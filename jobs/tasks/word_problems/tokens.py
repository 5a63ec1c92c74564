"""The text of a response as tokens: numbers, operators, brackets, letters, words and breaks, in one pass."""

import re
from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction
from typing import NamedTuple


class Kind(StrEnum):
    """What a token is."""

    NUMBER = "number"
    LETTER = "letter"
    OPERATOR = "operator"
    OPEN = "("
    CLOSE = ")"
    EQUALS = "="
    SAYS = "says"
    """A verb that may mean an equals sign: is, makes, gives."""
    WORD = "word"
    BREAK = "break"
    """A comma, colon, arrow: no expression crosses it."""
    END = "end"
    """The end of a sentence or line."""


class Token(NamedTuple):
    """One piece of text at characters `start` to `end`; numbers have a value, and are shares where they are parts of 1.

    `is_glued`: nothing separates it from the token before.
    """

    kind: Kind
    text: str
    start: int
    end: int
    value: Fraction = Fraction(0)
    is_share: bool = False
    is_glued: bool = False


SIGNS = {
    "+": "+", "-": "-", "\N{MINUS SIGN}": "-", "\N{EN DASH}": "-",
    "*": "*", "\N{MULTIPLICATION SIGN}": "*", "\N{MIDDLE DOT}": "*", "\N{DOT OPERATOR}": "*", "\N{BULLET}": "*",
    "/": "/", "\N{DIVISION SIGN}": "/", "\\times": "*", "\\cdot": "*", "\\div": "/",
}  # fmt: skip
_EQUALS = {"=", "≈", "\\approx", "\\equiv", "=="}
_SAYS = frozenset([
    "is", "are", "was", "were", "equals", "equal", "makes", "make", "gives", "give", "giving", "yields", "leaves",
    "leave", "leaving", "gets", "get", "totals", "becomes", "making",
])  # fmt: skip
_FRACTIONS = {"\\frac", "\\dfrac", "\\tfrac", "\\cfrac"}
_TEXT_COMMANDS = {"\\text", "\\textbf", "\\mathrm", "\\mathbf", "\\textit", "\\begin", "\\end", "\\textrm", "\\mbox"}
_SEPARATORS = {"\\implies", "\\rightarrow", "\\Rightarrow", "\\to", "\\therefore", "\\Longrightarrow", "\\quad"}
_IGNORED = {"$", "€", "£", "¥", "_", "#", "&", "\\left", "\\right", "\\,", "\\;", "\\!", "\\:", "\\$", "**", "`", "\\ "}
_MAX_DIGITS = 15

_TOKEN = re.compile(
    r"(?P<number>\d{1,3}(?:,\d{3})+(?!\d)(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"|(?P<unit>/ ?[A-Za-z]+)"
    r"|(?P<word>[^\W\d_]+(?:['\N{RIGHT SINGLE QUOTATION MARK}-][^\W\d_]+)*)"
    r"|(?P<command>\\(?:[A-Za-z]+|\\|.))"
    r"|(?P<space>[^\S\n]+)"
    r"|(?P<mark>\*\*|=>|->|==|.)"
    r"|(?P<line>\n)"
)
_LINE_MARK = re.compile(
    r"[ \t>#]*(?:[-*•+](?=\s)|\(?\d{1,2}[.)](?=\s)|\(?[a-z]\)(?=\s))?[ \t*_]*(?:step\s+\d{1,2}\s*[:.)-]?[*_]*)?",
    re.IGNORECASE,
)


def read_tokens(text: str) -> list[Token]:
    """Return the tokens of `text`; marks of lists and headings, currency signs and LaTeX's layout are left out."""
    return list(_tokens(text))


def _tokens(text: str) -> Iterator[Token]:
    braces = _Braces(text)
    position = 0
    last_end = -1
    is_line_start = True
    while position < len(text):
        if is_line_start:
            is_line_start = False
            mark = _LINE_MARK.match(text, position)
            position = mark.end() if mark else position
            continue
        match = _TOKEN.match(text, position)
        if match is None:
            return
        piece, kind, position = match[0], match.lastgroup, match.end()
        is_glued = match.start() == last_end
        if kind == "space" or piece in _IGNORED:
            # A currency sign does not split the text around it.
            last_end = position if is_glued and kind != "space" else last_end
            continue
        last_end = position
        is_line_start = kind == "line" or piece == "\\\\"
        if is_line_start:
            yield Token(Kind.END, piece, match.start(), position)
        elif piece in "{}" or piece in _FRACTIONS or piece in _TEXT_COMMANDS:
            yield from braces.read(piece, match.start(), position, is_glued)
        elif kind == "number":
            yield _number(match, text, is_glued)
        elif kind == "unit":
            yield Token(Kind.WORD, piece, match.start(), position)
        elif kind == "word":
            yield _word(match, is_glued)
        else:
            yield from _mark(match, text, is_glued)


class _Braces:
    """Reads LaTeX's braces: nothing around text, brackets around the parts of a fraction and around groups."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._open: list[str] = []
        self._pending = "group"

    def read(self, piece: str, start: int, end: int, is_glued: bool) -> list[Token]:
        """Return the tokens of a brace, or of a command that says what the next brace is."""
        if piece in _FRACTIONS:
            self._pending = "numerator"
            return []
        if piece in _TEXT_COMMANDS:
            self._pending = "text"
            return []
        signs = self._opened() if piece == "{" else self._closed(end)
        kinds = {"(": Kind.OPEN, ")": Kind.CLOSE, "/": Kind.OPERATOR}
        return [Token(kinds[sign], sign, start, end, is_glued=is_glued) for sign in signs]

    def _opened(self) -> str:
        kind, self._pending = self._pending, "group"
        self._open.append(kind)
        return {"numerator": "((", "text": ""}.get(kind, "(")

    def _closed(self, end: int) -> str:
        kind = self._open.pop() if self._open else "text"
        if kind == "numerator" and self._text.startswith("{", end):
            self._pending = "denominator"
            return ")/"
        return {"text": "", "group": ")"}.get(kind, "))")


def _number(match: re.Match[str], text: str, is_glued: bool) -> Token:
    piece, span = match[0], match.span()
    if len(piece) > _MAX_DIGITS:
        return Token(Kind.WORD, piece, *span)
    value = Fraction(piece.replace(",", ""))
    if text.startswith(("%", "\\%", " %", " percent"), span[1]):
        return Token(Kind.NUMBER, piece, *span, value / 100, is_share=True, is_glued=is_glued)
    return Token(Kind.NUMBER, piece, *span, value, is_glued=is_glued)


def _word(match: re.Match[str], is_glued: bool) -> Token:
    if len(match[0]) == 1:
        return Token(Kind.LETTER, match[0], *match.span(), is_glued=is_glued)
    word = match[0].lower()
    return Token(Kind.SAYS if word in _SAYS else Kind.WORD, word, *match.span(), is_glued=is_glued)


def _mark(match: re.Match[str], text: str, is_glued: bool) -> Iterator[Token]:
    piece, span = match[0], match.span()
    if piece in SIGNS:
        is_hyphen = piece == "-" and is_glued and text[span[1] : span[1] + 2].isalpha()
        if not is_hyphen:
            yield Token(Kind.OPERATOR, SIGNS[piece], *span, is_glued=is_glued)
    elif piece in _EQUALS:
        yield Token(Kind.EQUALS, piece, *span)
    elif piece in "([":
        yield Token(Kind.OPEN, "(", *span, is_glued=is_glued)
    elif piece in ")]":
        yield Token(Kind.CLOSE, ")", *span)
    elif piece in ".!?":
        # A point within a word such as i.e. ends no sentence.
        if not text[span[1] : span[1] + 1].isalnum():
            yield Token(Kind.END, piece, *span)
    elif piece in _SEPARATORS or not piece.startswith(("\\", "%")):
        yield Token(Kind.BREAK, piece, *span)
