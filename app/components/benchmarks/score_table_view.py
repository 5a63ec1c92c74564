"""Scores in the paper's layout: groups as headings, the best bold, the second best underlined."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from urllib.parse import urlencode

import pandas as pd
import streamlit as st

from app import theme
from app.components.benchmarks.paper_layout import FORMATS, grouped
from app.components.benchmarks.score_table import BLOCKS, COLUMNS, Score, ScoreLine, remarks
from app.components.widgets import exports, figures
from app.formats import NONE_SHOWN, escape_control_characters

OFF_PROTOCOL, DIFFERING, DISAGREEING = "†", "‡", "*"
_BLOCK_TITLES = ("In-distribution", "Out-of-distribution")
_CELL = "padding:0.28rem 0.32rem;text-align:right;white-space:nowrap"

_NAME = "padding:0.28rem 0.5rem;text-align:left;font-weight:400;min-width:9rem"


def show(lines: Sequence[ScoreLine], name: str) -> None:
    """Show the table with its exports and, below, why scores carry marks."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(
            "Percent correct; ± one standard error, clustered over questions. **Bold**: best of the column, "
            "underlined: second best.",
            width="content",
        )
        exports.show(lambda: lines, name, formats=FORMATS)
    st.html(html(lines, dict(zip(COLUMNS, COLUMNS, strict=True)), _spans()))
    _remark(
        OFF_PROTOCOL,
        "Not measured by the paper's protocol, so not ranked",
        remarks(lines, lambda score: score.protocol),
    )
    _remark_differing(lines)
    _remark(DISAGREEING, "Printed numbers that do not agree with each other", remarks(lines, lambda score: score.note))


def show_user_benchmarks(lines: Sequence[ScoreLine], titles: Mapping[str, str]) -> None:
    """Show the scores on the user's own benchmarks, of which `titles` has the columns."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption("Percent correct; ± one standard error, clustered over questions.", width="content")
        exports.show(lambda: as_user_frame(lines, titles), "own-benchmarks")
    st.html(html(lines, titles))
    _remark_differing(lines, "-own")


def as_user_frame(lines: Sequence[ScoreLine], titles: Mapping[str, str]) -> pd.DataFrame:
    """Return one row a line: scores on the user's own benchmarks in percent, with their standard errors."""
    rows = []
    for line in lines:
        row: dict[str, object] = {"Group": line.group, "Line": line.name}
        for column in titles:
            score = line.scores.get(column)
            row[column] = None if score is None else round(score.value, 3)
            row[f"{column}, standard error"] = None if score is None else score.standard_error
        rows.append(row)
    return pd.DataFrame(rows)


def html(lines: Sequence[ScoreLine], titles: Mapping[str, str], spans: str = "") -> str:
    """Return the table as HTML in which every name is escaped; `spans` is a row above the columns' titles."""
    colours = theme.palette()
    rule = f"border-top:1px solid {colours.grid}"
    heads = "".join(
        f'<th scope="col" style="{_CELL};font-weight:600">{escape(escape_control_characters(title))}</th>'
        for title in titles.values()
    )
    parts = [
        '<div style="overflow-x:auto"><table aria-label="Scores by model and benchmark" '
        'style="border-collapse:collapse;width:100%;font-size:0.82rem;'
        f"font-variant-numeric:tabular-nums;border-top:2px solid {colours.muted};"
        f'border-bottom:2px solid {colours.muted}">'
        f"<thead>{spans}<tr><th></th>{heads}</tr></thead><tbody>"
    ]
    for group, members in grouped(lines):
        title = escape(escape_control_characters(group))
        parts.append(
            f'<tr><th colspan="{len(titles) + 1}" scope="rowgroup" style="{rule};padding:0.4rem 0.5rem 0.15rem;'
            f'text-align:left;font-style:italic;font-weight:500;color:{colours.muted}">{title}</th></tr>'
        )
        parts += [_row(line, titles) for line in members]
    return "".join([*parts, "</tbody></table></div>"])


def _spans() -> str:
    spans = "".join(
        f'<th colspan="{len(block)}" style="{_CELL};text-align:center;font-weight:600">{title}</th>'
        for block, title in zip(BLOCKS.values(), _BLOCK_TITLES, strict=True)
    )
    return f"<tr><td></td>{spans}</tr>"


def _row(line: ScoreLine, columns: Iterable[str]) -> str:
    colours = theme.palette()
    badge = f' <span style="color:{colours.muted};font-size:0.72rem">paper</span>' if line.is_printed else ""
    wrap = "nowrap" if line.is_printed else "normal"
    tint = figures.faded(colours.muted, 0.09)
    back = "" if line.is_printed else f"background:{figures.faded(colours.fresh, 0.10)}"
    cells = "".join(
        f'<td style="{_CELL}{f";background:{tint}" if column in BLOCKS else ""}">{_cell(line.scores.get(column))}</td>'
        for column in columns
    )
    head = f'<th scope="row" style="{_NAME};white-space:{wrap}">{_named(line)}{badge}</th>'
    return f'<tr style="{back}">{head}{cells}</tr>'


def _named(line: ScoreLine) -> str:
    name = escape(escape_control_characters(line.name))
    run_id = line.source_run_id or (line.evaluations[0] if line.evaluations else None)
    if run_id is None:
        return name
    address = escape(f"run?{urlencode({'run': run_id})}", quote=True)
    return f'<a href="{address}" target="_self" style="color:inherit;text-decoration:underline dotted">{name}</a>'


def _cell(score: Score | None) -> str:
    if score is None:
        return f'<span style="color:{theme.palette().muted}">{NONE_SHOWN}</span>'
    marked = {1: f"<b>{score.text}</b>", 2: f"<u>{score.text}</u>"}.get(score.rank, score.text)
    signs = "".join(
        sign
        for sign, reason in ((OFF_PROTOCOL, score.protocol), (DIFFERING, score.differing), (DISAGREEING, score.note))
        if reason
    )
    reasons = (score.protocol, score.differing and f"differs in {score.differing}", score.note)
    explanation = "; ".join(filter(None, reasons))
    title = f' title="{escape(escape_control_characters(explanation), quote=True)}"' if explanation else ""
    sup = f'<sup style="line-height:0;color:{theme.palette().warning}">{signs}</sup>' if signs else ""
    error = (
        f'<br><span style="color:{theme.palette().muted};font-size:0.72rem">±{score.standard_error:.1f}</span>'
        if score.standard_error is not None
        else ""
    )
    return f"<span{title}>{marked}{sup}</span>{error}"


def _remark_differing(lines: Sequence[ScoreLine], name: str = "") -> None:
    title = "Not comparable with the newest of your scores in its column, by protocol if there is one; it differs in"
    _remark(DIFFERING, title, remarks(lines, lambda score: score.differing), name)


def _remark(sign: str, title: str, lines: Sequence[str], name: str = "") -> None:
    if lines:
        with st.expander(f"{sign} {title} ({len(lines):,})", key=f"remarks-{ord(sign)}{name}"):
            st.text(escape_control_characters("\n".join(lines)))
