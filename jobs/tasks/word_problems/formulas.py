"""Formulas in plain notation, as solutions of stories and lines of code have them: names, numbers and + - * / ( )."""

import re
from fractions import Fraction

from jobs.tasks.word_problems.expressions import Expression, MalformedError, parse_expression
from jobs.tasks.word_problems.tokens import Kind, Token

MAX_DIGITS = 15
_PIECE = re.compile(r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|(?P<sign>//|[-+*/()]))")

_BRACKETS = {"(": Kind.OPEN, ")": Kind.CLOSE}


def parse_formula(text: str) -> Expression:
    """Return the expression that `text` writes.

    Raises:
        MalformedError: It writes none.
    """
    text = text.rstrip()
    tokens: list[Token] = []
    position = 0
    while position < len(text):
        match = _PIECE.match(text, position)
        if match is None or len(match[0]) > MAX_DIGITS + 5:
            raise MalformedError
        position = match.end()
        piece = match[match.lastgroup or "sign"]
        if match.lastgroup == "number":
            tokens.append(Token(Kind.NUMBER, piece, match.start(), position, Fraction(piece)))
        elif match.lastgroup == "name":
            tokens.append(Token(Kind.LETTER, piece, match.start(), position))
        elif piece in _BRACKETS:
            tokens.append(Token(_BRACKETS[piece], piece, match.start(), position))
        else:
            is_sign = piece == "-" and (not tokens or tokens[-1].kind in {Kind.OPERATOR, Kind.OPEN})
            sign = "negative" if is_sign else piece[0]
            tokens.append(Token(Kind.OPERATOR, sign, match.start(), position))
    return parse_expression(tokens)
