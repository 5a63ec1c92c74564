"""Two scored models question by question: differences with intervals, items won and lost, and both answers."""

from collections.abc import Sequence
from dataclasses import replace

import pandas as pd
import plotly.graph_objects as go
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from exgrpo.app import address, theme
from exgrpo.app.components.benchmarks import samples
from exgrpo.app.components.benchmarks.samples import ITEM
from exgrpo.app.components.benchmarks.score_table import ScoreLine, column_of, part_names
from exgrpo.app.components.widgets import address_choice, data_table, figures, grid, notice
from exgrpo.app.formats import escape_control_characters
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.benchmarks import compare_scores
from exgrpo.db.queries import benchmarks
from exgrpo.db.rows.scores import ComparisonRow, ItemRow, describe_intervals
from exgrpo.jobs.actions.studies.measures import AVERAGES

FIRST, SECOND = "first", "second"
_BAR_HEIGHT = 30
_MAX_LISTED_ITEMS = 500
_LEAST_P = 0.001


def show(lines: Sequence[ScoreLine], scheme: str) -> None:
    """Show the choice of two models and how the second differs from the first."""
    left, right = st.columns(2, gap="medium")
    with left:
        first = _choose("From (one model, or the mean of several training seeds)", FIRST, lines, len(lines) - 1)
    with right:
        second = _choose("To", SECOND, lines, 0)
    if first.key == second.key:
        st.markdown(":gray[Choose two different models.]")
        return
    rows = compare_scores(first.scored, second.scored, scheme)
    if not rows:
        notice.show("info", "Nothing to compare", "These two have no benchmark with common questions.")
        return
    _warn(rows)
    left, right = st.columns([3, 2], gap="small")
    with left:
        frame = table(rows)
        caption = f"Second minus first, in points; {describe_intervals(rows, column_of)}"
        data_table.show_caption(caption, frame, "score-differences")
        grid.draw(frame, "differences", "Differences of the two models by benchmark", _columns())
    with right:
        figures.show_card(
            "Difference", "points; to the right: the second is better", _chart(rows), "difference-chart",
            "Differences with their 95% intervals by benchmark",
        )  # fmt: skip
    _items(first, second, scheme, [row.benchmark for row in rows if row.benchmark not in AVERAGES])


def table(rows: Sequence[ComparisonRow]) -> pd.DataFrame:
    """Return one row per benchmark and average, in percent and points."""
    frame = pd.DataFrame(
        {
            "Benchmark": [column_of(row.benchmark) for row in rows],
            "Questions": [row.num_questions for row in rows],
            "First": [100 * row.first for row in rows],
            "Second": [100 * row.second for row in rows],
            "Difference": [100 * row.difference for row in rows],
            "From": [100 * row.low for row in rows],
            "To": [100 * row.high for row in rows],
            "p": ["< 0.001" if row.p_value < _LEAST_P else f"{row.p_value:.3f}" for row in rows],
            "Won": [row.num_won for row in rows],
            "Lost": [row.num_lost for row in rows],
        }
    )
    if any(row.differing for row in rows):
        frame["Differs in"] = [part_names(row.differing) for row in rows]
    return frame


def _chart(rows: Sequence[ComparisonRow]) -> go.Figure:
    colours = theme.palette()
    height = max(figures.HEIGHT, _BAR_HEIGHT * len(rows) + 60)
    figure = figures.new_figure(height, "points", x={"showgrid": True}, hovermode="closest")
    drawn = list(rows)[::-1]
    figure.add_vline(x=0, line={"color": colours.muted, "width": 1, "dash": "dot"})
    figure.add_trace(
        go.Scatter(
            x=[100 * row.difference for row in drawn], y=[column_of(row.benchmark) for row in drawn],
            mode="markers", marker={"color": colours.fresh, "size": 8},
            error_x={
                "array": [100 * (row.high - row.difference) for row in drawn],
                "arrayminus": [100 * (row.difference - row.low) for row in drawn],
                "type": "data", "symmetric": False, "color": colours.fresh, "thickness": 1.5,
            },
            text=[f"{100 * row.difference:+z.1f} points" for row in drawn],
            hovertemplate="%{y}: %{text}<extra></extra>", showlegend=False,
        )
    )  # fmt: skip
    return figure


def _choose(label: str, parameter: str, lines: Sequence[ScoreLine], default: int) -> ScoreLine:
    """Show the choice of models and return their mean; the address names each by one of its evaluations."""
    by_evaluation = {run_id: line.key for line in reversed(lines) for run_id in line.evaluations}
    by_evaluation |= {line.key: line.key for line in lines}  # of an evaluation scored by two settings, each line
    wanted = ",".join(st.query_params.get_all(parameter)).split(",")
    keys = list(dict.fromkeys(by_evaluation[run_id] for run_id in wanted if run_id in by_evaluation))
    if keys:
        st.query_params[parameter] = ",".join(keys)  # an older evaluation of the same model may be named
    names = {line.key: f"{line.name} ({line.group})" for line in lines}
    usual = lines[default]
    drops = [ITEM]
    chosen = address_choice.select_several(label, names, parameter, [usual.key], "Choose a model", drops=drops)
    return _mean_of([line for line in lines if line.key in chosen] or [usual])


def _mean_of(lines: Sequence[ScoreLine]) -> ScoreLine:
    """Return models that were trained alike with other seeds as one line."""
    name = lines[0].name if len(lines) == 1 else f"Mean of {len(lines)}, such as {lines[0].name}"
    scored = tuple(run for line in lines for run in line.scored)
    return replace(lines[0], key=",".join(line.key for line in lines), name=name, scored=scored)


def _warn(rows: Sequence[ComparisonRow]) -> None:
    unequal = [row for row in rows if row.differing and row.benchmark not in AVERAGES]
    if unequal:
        lines = [f"{column_of(row.benchmark)}: {part_names(row.differing)}" for row in unequal]
        notice.show("warning", "These scores were measured differently; they differ in", "\n".join(lines))


def _items(first: ScoreLine, second: ScoreLine, scheme: str, names: Sequence[str]) -> None:
    st.subheader("Questions won and lost", anchor=False)
    titles = {name: column_of(name) for name in names}
    benchmark = address_choice.select("Benchmark", titles, "on", names[0], [ITEM], 240)
    items = ask(benchmarks.list_items, first.scored, second.scored, scheme, benchmark)
    if not items:
        st.markdown(":gray[Both answer every question correctly equally often.]")
        return
    opened = st.query_params.get(ITEM)
    _item_table(items, f"{first.key}-{second.key}-{scheme}-{benchmark}", opened)
    item = next((item for item in items if item.question_id == opened), None)
    if item is not None:
        rated = ((first, item.first), (second, item.second))
        sides = [samples.Side(dict(line.scored)[benchmark], line.name, rate) for line, rate in rated]
        samples.show_answers(item.question_id, benchmark, sides)


def _item_table(items: Sequence[ItemRow], name: str, opened: str | None) -> None:
    most = _MAX_LISTED_ITEMS
    listed = [*items[: most // 2], *items[-most // 2 :]] if len(items) > most else items
    frame = pd.DataFrame(
        {
            "Question": [escape_control_characters(item.question_id) for item in listed],
            "First": [100 * item.first for item in listed],
            "Second": [100 * item.second for item in listed],
            "Difference": [100 * item.difference for item in listed],
        }
    )
    won = sum(item.difference > 0 for item in items)
    cut = f", the {_MAX_LISTED_ITEMS} largest differences listed" if len(listed) < len(items) else ""
    caption = f"{won:,} won, {len(items) - won:,} lost{cut}; click one for both answers"
    data_table.show_caption(caption, frame, "questions-won-and-lost")
    percent = st.column_config.NumberColumn(format="%.0f%%", help="Share of its samples that are correct")
    points = st.column_config.NumberColumn(format="%+.0f", help="Points")
    clicks = grid.Clicks([item.question_id for item in listed], lambda name: address.put({ITEM: name}), opened)
    columns = {"First": percent, "Second": percent, "Difference": points}
    alt = "Questions on which the two models differ"
    grid.draw(frame, f"items-{name}", alt, columns, 10 if opened is None else 5, clicks)


def _columns() -> dict[str, ColumnConfig]:
    number = st.column_config.NumberColumn
    points = number(format="%+.1f")
    return {
        "First": number(format="%.1f%%"),
        "Second": number(format="%.1f%%"),
        "Difference": points,
        "From": number("95% from", format="%+.1f"),
        "To": number("to", format="%+.1f"),
        "p": st.column_config.TextColumn(help="Two-sided, by the same intervals, with Holm's correction for all rows"),
        "Won": number(help="Questions that the second answers correctly more often"),
        "Lost": number(help="Questions that the second answers correctly less often"),
        "Differs in": st.column_config.TextColumn(help="Settings in which the two scores differ"),
    }
