"""Text of models with its mathematics rendered; everything else stays plain text."""

import re
from collections.abc import Iterator
from itertools import islice

import streamlit as st

from app.formats import escape_control_characters

MAX_FORMULAS = 100
"""Further formulas stay as plain text: each one is a separate element of the page."""

_PROSE = re.compile(r"\$|\n\s*\n")
"""A dollar sign could close the formula in the renderer, and no formula has an empty line."""
_FORMULA = re.compile(
    r"\$\$(?P<dollars>.+?)\$\$|\\\[(?P<brackets>.+?)\\\]|\\\((?P<parens>.+?)\\\)|(?<!\\)\$(?P<dollar>[^$\n]+?)(?<!\\)\$"
    r"|(?P<box>\\boxed\{(?:[^{}]|\{[^{}]*\})*\})",
    re.DOTALL,
)


def show(text: str) -> None:
    """Show the text in pieces, one below the other."""
    with st.container(border=True, gap="xxsmall"):
        for piece, is_formula in pieces(text):
            if is_formula:
                st.latex(escape_control_characters(piece), width="content")
            else:
                st.text(escape_control_characters(piece))


def pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text's pieces in order, each with whether it is a formula; formulas come without their delimiters."""
    end = 0
    for formula in islice(filter(_is_formula, _FORMULA.finditer(text)), MAX_FORMULAS):
        if before := text[end : formula.start()].strip():
            yield before, False
        yield _body(formula), True
        end = formula.end()
    if rest := text[end:].strip():
        yield rest, False


def _is_formula(formula: re.Match[str]) -> bool:
    return not _PROSE.search(_body(formula))


def _body(formula: re.Match[str]) -> str:
    return next(part for part in formula.groups() if part is not None).strip()
