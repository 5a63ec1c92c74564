"""Reads a normalised answer as a formula, by a grammar of its own: nothing of it is ever run as a program.

The published rules hand it to sympy's `parse_expr`, which evaluates Python. What this grammar does not know cannot be
compared and counts as different, as there.
"""

import re
from typing import Any

import sympy

MAX_EXPONENT = 10_000
_TOKEN = re.compile(r"\s*(?:(\d+\.?\d*(?:e[+-]?\d+)?|\.\d+)|([a-zA-Z]+)|(\*\*|[-+*/^()!]))")
_FUNCTIONS: dict[str, Any] = {
    "sqrt": sympy.sqrt, "sin": sympy.sin, "cos": sympy.cos, "tan": sympy.tan, "cot": sympy.cot, "sec": sympy.sec,
    "csc": sympy.csc, "log": sympy.log, "ln": sympy.log, "exp": sympy.exp, "asin": sympy.asin, "acos": sympy.acos,
    "atan": sympy.atan, "abs": sympy.Abs,
}  # fmt: skip
_CONSTANTS: dict[str, Any] = {"pi": sympy.pi, "inf": sympy.Symbol("inf")}


class ExpressionError(ValueError):
    """The text is no formula that this grammar knows."""


def read_expression(text: str) -> sympy.Expr:
    """Return the formula; letters side by side are multiplied, as are a number and what follows it.

    Raises:
        ExpressionError: It cannot be read.
    """
    reader = _Reader(_tokens(text))
    value = reader.sum()
    if reader.next:
        raise ExpressionError(f"unexpected {reader.next!r} after the end of the expression.")
    return value


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    place = 0
    while place < len(text.rstrip()):
        match = _TOKEN.match(text, place)
        if match is None:
            raise ExpressionError(f"{text[place : place + 20]!r} is no part of a formula.")
        name = match.group(2)
        # A name that is not known is single letters.
        is_whole = name is None or name in _FUNCTIONS or name in _CONSTANTS
        tokens += [match.group().strip()] if is_whole else list(name)
        place = match.end()
    return tokens


class _Reader:
    """Recursive descent: sum, product, sign, power, atom. Depth is the interpreter's limit, and so an error."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._place = 0

    @property
    def next(self) -> str:
        return self._tokens[self._place] if self._place < len(self._tokens) else ""

    def _take(self) -> str:
        token = self.next
        self._place += 1
        return token

    def sum(self) -> Any:  # noqa: ANN401 - sympy has no one type for what its operators return
        value = self._product()
        while self.next in ("+", "-"):
            value = value + self._product() if self._take() == "+" else value - self._product()
        return value

    def _product(self) -> Any:  # noqa: ANN401 - as above
        value = self._signed()
        while self.next and self.next not in ("+", "-", ")"):
            if self.next in ("*", "/"):
                value = value * self._signed() if self._take() == "*" else value / self._signed()
            else:
                value = value * self._power()
        return value

    def _signed(self) -> Any:  # noqa: ANN401 - as above
        if self.next in ("+", "-"):
            return self._signed() if self._take() == "+" else -self._signed()
        return self._power()

    def _power(self) -> Any:  # noqa: ANN401 - as above
        base = self._atom()
        if self.next == "!":
            raise ExpressionError("a factorial is not compared.")
        if self.next not in ("^", "**"):
            return base
        self._take()
        exponent = self._signed()
        if exponent.is_number and abs(exponent) > MAX_EXPONENT:
            raise ExpressionError("the power is too high.")
        return base**exponent

    def _atom(self) -> Any:  # noqa: ANN401 - as above
        token = self._take()
        if token == "(":
            value = self.sum()
            if self._take() != ")":
                raise ExpressionError("a parenthesis is open.")
            return value
        if token in _FUNCTIONS:
            return _FUNCTIONS[token](self._power())
        if token[:1].isdigit() or token.startswith("."):
            return sympy.Float(token) if {".", "e"} & set(token) else sympy.Integer(token)
        if token.isalpha():
            return _CONSTANTS.get(token, sympy.Symbol(token))
        raise ExpressionError(f"{token!r} is no value.")
