"""Text of models and logs as it is: cut where it is long, coloured, or with its mathematics rendered."""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from itertools import islice
from pathlib import Path

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.components.widgets import data_table, notice
from exgrpo.app.formats import NONE_SHOWN, byte_size, escape_control_characters
from exgrpo.app.queries.runs import LogLines
from exgrpo.db.rows.trajectories import MAX_CHARACTERS
from exgrpo.jobs.evaluation.analysis.case_text import Excerpt, as_latex, as_markdown


def show_long(text: str) -> None:
    """Show the text, or the beginning of a long one with a note."""
    show_raw(beginning(text))
    show_bound(len(text))


def show_raw(text: str | None, title: str = "") -> None:
    """Show a short text as it is, under a title."""
    if title:
        st.markdown(f"**{title}**")
    st.code(escape_control_characters(text or "") or NONE_SHOWN, language=None, wrap_lines=True)


def beginning(text: str) -> str:
    """Return the text up to the bound."""
    return text[:MAX_CHARACTERS]


def show_bound(num_characters: int) -> None:
    """Show how much of a text was cut, if any."""
    if num_characters > MAX_CHARACTERS:
        st.caption(f"The first {MAX_CHARACTERS:,} of {num_characters:,} characters; {command_for_all()} prints all.")


def command_for_all() -> str:
    """Return the command that prints a whole trajectory, in Markdown; of a view it names the runs root, a cache."""
    here = settings.current()
    root = f" --runs-root {shlex.quote(str(here.runs_root))}" if here.is_view else ""
    return f"`exgrpo query trajectory{root}`"


PAPER_FORMATS: data_table.Formats = {
    "LaTeX": ("tex", "application/x-tex", lambda titled: as_latex(titled[1])),
    "Markdown": ("md", "text/markdown", lambda titled: as_markdown(*titled)),
}
"""Of a title and excerpts."""


def export_for_paper(title: str, excerpts: Sequence[Excerpt], name: str) -> None:
    """Show the menu of downloads of texts as a paper quotes them."""
    data_table.export(lambda: (title, [*excerpts]), name, formats=PAPER_FORMATS, label="For a paper")


NUM_LINES = 200
NUM_LINES_IN_VIEW = 24
HEIGHT = 520


def show_log(read: Callable[[str], LogLines], path: Path | None) -> None:
    """Show what `read` finds in a log for the words searched for, as it is, scrolled to the end, and its download."""
    if path is None:
        notice.show_empty("article", "No log yet", "The run writes here as soon as its process starts.")
        return
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        words = st.text_input(
            "Search the log", placeholder="Search the whole log", icon=":material/search:", width=280, key="find",
            bind="query-params", label_visibility="collapsed",
        ).strip()  # fmt: skip
        found = read(words)
        st.download_button(
            f"Download log.txt ({byte_size(found.num_bytes)})", lambda: path.open("rb"), file_name="log.txt",
            mime="text/plain", icon=":material/download:", type="tertiary", key="log-download", on_click="ignore",
        )  # fmt: skip
    shown = f"{len(found.lines):,}" if len(found.lines) == found.num_matching else f"Last {len(found.lines):,}"
    of = f" of {found.num_matching:,}" if words and len(found.lines) < found.num_matching else ""
    noun = "line" if found.num_matching == 1 else "lines"
    st.caption(f"{shown}{of} {noun} of `log.txt`{' with these words' if words else ''}")
    texts = [f"{number:>6,}  {text}" if number else text for number, text in found.lines]
    if texts:
        with st.container(
            height=HEIGHT if len(texts) > NUM_LINES_IN_VIEW else "content", autoscroll=True, key="log-tail"
        ):
            st.code(escape_control_characters("\n".join(texts)), language=None, wrap_lines=True)


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


def show_marked(parts: Iterable[Part]) -> None:
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


MAX_FORMULAS = 100
"""Further formulas stay as plain text: each one is a separate element of the page."""

_PROSE = re.compile(r"\$|\n\s*\n")
"""A dollar sign could close the formula in the renderer, and no formula has an empty line."""
_FORMULA = re.compile(
    r"\$\$(?P<dollars>.+?)\$\$|\\\[(?P<brackets>.+?)\\\]|\\\((?P<parens>.+?)\\\)|(?<!\\)\$(?P<dollar>[^$\n]+?)(?<!\\)\$"
    r"|(?P<box>\\boxed\{(?:[^{}]|\{[^{}]*\})*\})",
    re.DOTALL,
)


def show_mathematics(text: str) -> None:
    """Show the text in pieces, one below the other."""
    with st.container(border=True, gap="xxsmall"):
        for piece, is_formula in formula_pieces(text):
            if is_formula:
                st.latex(escape_control_characters(piece), width="content")
            else:
                st.text(escape_control_characters(piece))


def formula_pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Yield the text's pieces in order, each with whether it is a formula; formulas come without their delimiters."""
    end = 0
    formulas = (found for found in _FORMULA.finditer(text) if not _PROSE.search(_body(found)))
    for formula in islice(formulas, MAX_FORMULAS):
        if before := text[end : formula.start()].strip():
            yield before, False
        yield _body(formula), True
        end = formula.end()
    if rest := text[end:].strip():
        yield rest, False


def _body(formula: re.Match[str]) -> str:
    return next(part for part in formula.groups() if part is not None).strip()
