"""Text of models with coloured parts: every character is escaped, so that none of it is taken for markup."""

from collections.abc import Iterable
from dataclasses import dataclass
from html import escape

import streamlit as st

from app.formats import escape_control_characters

_FRAME = (
    "white-space:pre-wrap;overflow-wrap:anywhere;font-family:var(--font-mono,ui-monospace,monospace);"
    "font-size:0.85rem;line-height:1.75"
)


@dataclass(frozen=True, slots=True)
class Part:
    """A piece of text with the colour behind it, as CSS names it, and its note on hover."""

    text: str
    background: str = ""
    note: str = ""
    is_underlined: bool = False


def show(parts: Iterable[Part]) -> None:
    """Show the parts one after the other, as they are."""
    st.html(f'<div style="{_FRAME}">{html(parts)}</div>')


def html(parts: Iterable[Part]) -> str:
    """Return the parts as HTML in which all of their text is escaped."""
    return "".join(_span(part) for part in parts)


def _span(part: Part) -> str:
    text = escape(escape_control_characters(part.text))
    style = ";".join(
        rule
        for rule in (
            f"background:{part.background};border-radius:2px" if part.background else "",
            "border-bottom:2px solid currentColor;font-weight:600" if part.is_underlined else "",
        )
        if rule
    )
    if not style and not part.note:
        return text
    note = f' title="{escape(part.note, quote=True)}"' if part.note else ""
    return f'<span style="{style}"{note}>{text}</span>'
