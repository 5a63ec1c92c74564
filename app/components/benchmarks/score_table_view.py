"""Scores in the paper's layout: groups as headings, the best bold, the second best underlined."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from urllib.parse import urlencode

import pandas as pd
import streamlit as st
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from app import theme
from app.components.benchmarks.paper_layout import FORMATS, grouped
from app.components.benchmarks.score_table import BLOCKS, COLUMNS, Score, ScoreLine, remarks
from app.components.widgets import exports, figures
from app.formats import NONE_SHOWN, escape_control_characters

OFF_PROTOCOL, DIFFERING, DISAGREEING = "†", "‡", "*"
_SPANS = [
    (title, len(block))
    for title, block in zip(("In-distribution", "Out-of-distribution"), BLOCKS.values(), strict=True)
]


def show(lines: Sequence[ScoreLine], name: str) -> None:
    """Show the table with its exports and, below, why scores carry marks."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(
            "Percent correct; ± half of the 95% interval, clustered over questions. **Bold**: best of the column, "
            "underlined: second best.",
            width="content",
        )
        exports.show(lambda: lines, name, formats=FORMATS)
    st.html(html(lines, dict(zip(COLUMNS, COLUMNS, strict=True)), _SPANS))
    _remark(
        OFF_PROTOCOL,
        "Not measured by the paper's protocol, so not ranked",
        remarks(lines, lambda score: score.protocol),
    )
    _remark_differing(lines)
    _remark(DISAGREEING, "Printed numbers that do not agree with each other", remarks(lines, lambda score: score.note))


def show_user_benchmarks(lines: Sequence[ScoreLine], titles: Mapping[str, str]) -> None:
    """Show the scores on the user's benchmarks, of which `titles` has the columns."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption("Percent correct; ± half of the 95% interval, clustered over questions.", width="content")
        exports.show(lambda: as_user_frame(lines, titles), "own-benchmarks")
    st.html(html(lines, titles))
    _remark_differing(lines, "-own")


def as_user_frame(lines: Sequence[ScoreLine], titles: Mapping[str, str]) -> pd.DataFrame:
    """Return one row per line: scores on the user's benchmarks in percent, with half of their 95% intervals."""
    rows = []
    for line in lines:
        row: dict[str, object] = {"Group": line.group, "Line": line.name}
        for column in titles:
            score = line.scores.get(column)
            row[column] = None if score is None else round(score.value, 3)
            row[f"{column}, ± 95%"] = None if score is None else score.half_interval
        rows.append(row)
    return pd.DataFrame(rows)


def html(lines: Sequence[ScoreLine], titles: Mapping[str, str], spans: Sequence[tuple[str, int]] = ()) -> str:
    """Return the table as HTML in which every text is escaped; `spans` are headings above so many columns each."""
    colours = theme.palette()
    return _template().render(
        groups=grouped(lines), titles=titles, spans=spans, blocks=BLOCKS, colours=colours, none_shown=NONE_SHOWN,
        tint=figures.faded(colours.muted, 0.09), yours=figures.faded(colours.fresh, 0.10),
        address=_address, form_address=_form_address, signs=_signs, explanation=_explanation,
    )  # fmt: skip


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["clean"] = escape_control_characters
    return environment.get_template("score_table.html.jinja")


def _address(line: ScoreLine) -> str | None:
    run_id = line.source_run_id or (line.evaluations[0] if line.evaluations else None)
    return None if run_id is None else f"run?{urlencode({'run': run_id})}"


def _form_address(line: ScoreLine) -> str | None:
    """Return where a printed row's model is filled into the evaluation form, None for a row without a hub name."""
    query = {"start": "true", "target": line.model, "template": line.template}
    return f"benchmarks?{urlencode(query)}" if line.model else None


def _signs(score: Score) -> str:
    reasons = ((OFF_PROTOCOL, score.protocol), (DIFFERING, score.differing), (DISAGREEING, score.note))
    return "".join(sign for sign, reason in reasons if reason)


def _explanation(score: Score) -> str:
    reasons = (score.protocol, score.differing and f"differs in {score.differing}", score.note)
    return "; ".join(filter(None, reasons))


def _remark_differing(lines: Sequence[ScoreLine], name: str = "") -> None:
    title = "Not comparable with the newest of your scores in its column, by protocol if there is one; it differs in"
    _remark(DIFFERING, title, remarks(lines, lambda score: score.differing), name)


def _remark(sign: str, title: str, lines: Sequence[str], name: str = "") -> None:
    if lines:
        with st.expander(f"{sign} {title} ({len(lines):,})", key=f"remarks-{ord(sign)}{name}"):
            st.text(escape_control_characters("\n".join(lines)))
