"""Scores in the paper's layout: groups as headings, the best bold, the second best underlined."""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from itertools import groupby
from pathlib import Path
from urllib.parse import urlencode

import pandas as pd
import streamlit as st
from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from exgrpo.app import settings, theme
from exgrpo.app.components.benchmarks.score_table import BLOCKS, COLUMNS, Score, ScoreLine, remarks
from exgrpo.app.components.widgets import data_table, figures
from exgrpo.app.components.widgets.data_table import markdown, pipe_table
from exgrpo.app.formats import NONE_SHOWN, escape_control_characters

OFF_PROTOCOL, DIFFERING, DISAGREEING = "†", "‡", "*"
_CAPTION = "Percent correct; below it the 95% interval over questions."
_BLOCKS = dict(zip(("In-distribution", "Out-of-distribution"), BLOCKS.values(), strict=True))


def show(lines: Sequence[ScoreLine], name: str) -> None:
    """Show the table with its exports and, below, why scores carry marks."""
    caption = f"{_CAPTION} **Bold**: best of the column, underlined: second best."
    data_table.show_caption(caption, lambda: lines, name, formats=_FORMATS)
    st.html(
        html(lines, dict(zip(COLUMNS, COLUMNS, strict=True)), [(title, len(block)) for title, block in _BLOCKS.items()])
    )
    _remark(
        OFF_PROTOCOL,
        "Not measured by the paper's protocol, so not ranked",
        remarks(lines, lambda score: score.protocol),
    )
    _remark_differing(lines)
    _remark(DISAGREEING, "Printed numbers that do not agree with each other", remarks(lines, lambda score: score.note))


def show_user_benchmarks(lines: Sequence[ScoreLine], titles: Mapping[str, str]) -> None:
    """Show the scores on the user's benchmarks, of which `titles` has the columns."""
    data_table.show_caption(_CAPTION, lambda: as_rows(lines, titles), "own-benchmarks")
    st.html(html(lines, titles))
    _remark_differing(lines, "-own")


def as_rows(lines: Sequence[ScoreLine], columns: Iterable[str] = COLUMNS) -> list[dict[str, object]]:
    """Return one row per line: its source, and scores in percent with the ends of their 95% intervals."""
    rows = []
    for line in lines:
        row: dict[str, object] = {"Group": line.group, "Line": line.name, "From": "paper" if line.is_printed else "own"}
        for column in columns:
            score = line.scores.get(column)
            row[column] = None if score is None else round(score.value, 3)
            ends = (None, None) if score is None or score.interval is None else score.interval
            row[f"{column}, 95% from"], row[f"{column}, 95% to"] = ends
        rows.append(row | {"Trained run": line.source_run_id, "Evaluations": ", ".join(line.evaluations)})
    return rows


def as_markdown(lines: Sequence[ScoreLine]) -> str:
    """Return a pipe table with the best of each column bold and the second best underlined."""
    marks = {1: "**{}**", 2: "<u>{}</u>"}
    names = pd.DataFrame([(markdown(line.group), markdown(line.name)) for line in lines], columns=["", " "])
    return pipe_table(names.join(_cells(lines, marks, " ({:.1f} to {:.1f})")))


def as_latex(lines: Sequence[ScoreLine]) -> str:
    """Return a `tabular` with the blocks of the paper, the best bold, the second best underlined."""
    marks = {1: "\\textbf{{{}}}", 2: "\\underline{{{}}}"}
    frame = _cells(lines, marks, " {{\\scriptsize ({:.1f} to {:.1f})}}")
    frame.columns = pd.MultiIndex.from_tuples([(title, name) for title, block in _BLOCKS.items() for name in block])
    frame.index = pd.MultiIndex.from_tuples([(line.group, line.name) for line in lines])
    styled = frame.style.format_index(escape="latex").format_index(escape="latex", axis="columns")
    return f"% needs \\usepackage{{booktabs,multirow}}\n{styled.to_latex(hrules=True, multicol_align='c')}"


def _cells(lines: Sequence[ScoreLine], marks: Mapping[int, str], error: str) -> pd.DataFrame:
    """Return scores as texts, by rank in `marks`, with `error` after those that have an interval."""

    def cell(score: Score | None) -> str:
        if score is None:
            return "--"
        interval = "" if score.interval is None else error.format(*score.interval)
        return marks.get(score.rank, "{}").format(score.text) + interval

    return pd.DataFrame([[cell(line.scores.get(column)) for column in COLUMNS] for line in lines], columns=COLUMNS)


_FORMATS: data_table.Formats = {
    "CSV": ("csv", "text/csv", lambda lines: data_table.as_csv(as_rows(lines))),
    "Markdown": ("md", "text/markdown", as_markdown),
    "LaTeX": ("tex", "application/x-tex", as_latex),
}


def html(lines: Sequence[ScoreLine], titles: Mapping[str, str], spans: Sequence[tuple[str, int]] = ()) -> str:
    """Return the table as HTML in which every text is escaped; `spans` are headings above so many columns each."""
    colours = theme.palette()
    groups = [(group, list(members)) for group, members in groupby(lines, lambda line: line.group)]
    return _template().render(
        groups=groups, titles=titles, spans=spans, blocks=BLOCKS, colours=colours, none_shown=NONE_SHOWN,
        tint=figures.faded(colours.muted, 0.09), yours=figures.faded(colours.fresh, 0.10),
        address=_address, form_address=_form_address, signs=_signs, explanation=_explanation,
    )  # fmt: skip


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters["clean"] = escape_control_characters
    return environment.get_template("score_table.html.jinja")


def _address(line: ScoreLine) -> str | None:
    run_id = line.source_run_id or (line.evaluations[0] if line.evaluations else None)
    return None if run_id is None else f"run?{urlencode({'run': run_id})}"


def _form_address(line: ScoreLine) -> str | None:
    """Return where a printed row's model is filled into the evaluation form, None without a hub name or in views."""
    query = {"start": "true", "target": line.model, "template": line.template}
    return f"benchmarks?{urlencode(query)}" if line.model and not settings.current().is_view else None


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
