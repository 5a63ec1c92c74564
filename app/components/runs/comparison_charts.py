"""Curves of several runs in one pair of axes each, and the legend that they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.runs.comparison import Group, Line, aligned, mean_line
from app.components.widgets import curves, figures
from app.formats import escape_control_characters
from app.queries.answers import ask
from app.queries.comparison import Axis, axis_points
from app.queries.runs import metric_series
from db.queries import metrics
from db.rows.display_names import BATCH_PASS_RATE, held_out_score
from db.rows.runs import MetricPoint
from exgrpo_core.step_report import METRICS

HELD_OUT = "held_out"
"""The held-out score among the keys of metrics."""
AXES = {
    "Steps": Axis.STEPS,
    "Fresh rollouts": Axis.ROLLOUTS,
    "Generated tokens": Axis.TOKENS,
    "Training time": Axis.TIME,
}
_DASHES = ("solid", "dot", "dash", "dashdot")
_BORDERS = ("solid", "dotted", "dashed", "double")
_TITLES = {
    Axis.STEPS: "step",
    Axis.ROLLOUTS: "fresh rollouts",
    Axis.TOKENS: "generated tokens",
    Axis.TIME: "minutes of training steps",
}
_SECONDS_PER_MINUTE = 60.0


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that one chart compares between runs."""

    key: str
    title: str
    unit: str
    is_share: bool = False


QUANTITIES = (
    Quantity("reward/pass_at_1", BATCH_PASS_RATE, "share of fresh rollouts", is_share=True),
    Quantity(HELD_OUT, held_out_score(), "share", is_share=True),
    Quantity("policy/entropy", "Entropy", "nats per token, fresh rollouts"),
    Quantity("response/mean_tokens", "Response length", "tokens, fresh rollouts"),
    Quantity("buffer/num_questions", "Replay buffer", "questions"),
    Quantity("buffer/num_retired", "Retired set", "questions"),
    Quantity("optim/gradient_norm", "Gradient norm", "before clipping"),
    Quantity("seconds/step", "Time of a step", "seconds"),
)
MORE = tuple(sorted(set(METRICS) - {quantity.key for quantity in QUANTITIES}))
"""Metrics that can be shown beside these."""


@dataclass(frozen=True, slots=True)
class Style:
    """How a curve differs from the others: by colour and, beyond six curves, by dashes."""

    colour: str
    dash: str
    border: str


def style(index: int) -> Style:
    """Return the style of the curve with this index in the list, the same in every chart."""
    colours = theme.palette()
    wheel = (colours.fresh, colours.held_out, colours.replay, colours.retired, colours.warning, colours.muted)
    round_ = index // len(wheel) % len(_DASHES)
    return Style(wheel[index % len(wheel)], _DASHES[round_], _BORDERS[round_])


def show(drawn: Sequence[Group], axis: Axis, more: Sequence[str]) -> None:
    """Show the legend and one chart per quantity in two columns; a group of several runs is a mean within its range."""
    show_quantities(drawn, axis, (*QUANTITIES, *map(quantity_of, more)))


def quantity_of(key: str) -> Quantity:
    """Return the quantity of a metric, with the title and unit of its chart where it has one."""
    for quantity in QUANTITIES:
        if quantity.key == key:
            return quantity
    for chart in curves.CHARTS:
        for curve in chart.curves:
            if curve.key == key:
                title = chart.title if len(chart.curves) == 1 else f"{chart.title}: {curve.name}"
                return Quantity(key, title, chart.unit)
    return Quantity(key, key, METRICS[key])


def show_quantities(drawn: Sequence[Group], axis: Axis, quantities: Sequence[Quantity]) -> None:
    """Show the legend and a chart of each of these quantities."""
    legend([group.name for group in drawn])
    run_ids = [run_id for group in drawn for run_id in group.run_ids]
    axes = {run_id: axis_points(run_id, axis) for run_id in run_ids}
    series = {run_id: _series(run_id, quantities) for run_id in run_ids}
    columns = st.columns(2, gap="small")
    for index, quantity in enumerate(quantities):
        lines = [
            mean_line([aligned(series[run_id][quantity.key], axes[run_id]) for run_id in group.run_ids])
            for group in drawn
        ]
        with columns[index % 2]:
            figures.show_card(
                quantity.title,
                quantity.unit,
                figure_of([group.name for group in drawn], lines, quantity, axis),
                f"compare-{quantity.key.replace('/', '-')}-{axis}",
                f"{quantity.title} of every run against {_TITLES[axis]}",
            )


def legend(names: Sequence[str]) -> None:
    """Show each name after a piece of its curve."""
    marks = []
    for index, name in enumerate(names):
        look = style(index)
        line = f"display:inline-block;width:1.6rem;border-top:3px {look.border} {look.colour};vertical-align:middle"
        label = escape(escape_control_characters(name))
        marks.append(f'<span style="white-space:nowrap"><span style="{line}"></span>&ensp;{label}</span>')
    st.html(f'<div style="display:flex;flex-wrap:wrap;gap:0.2rem 1.4rem;font-size:0.9rem">{"".join(marks)}</div>')


def figure_of(names: Sequence[str], lines: Sequence[Line | None], quantity: Quantity, axis: Axis) -> go.Figure | None:
    """Return one curve per name, with its range where it is a mean of several runs; None without any value."""
    if not any(line is not None for line in lines):
        return None
    figure = figures.new_figure()
    unit = _SECONDS_PER_MINUTE if axis is Axis.TIME else 1.0
    for index, (name, line) in enumerate(zip(names, lines, strict=True)):
        if line is not None:
            _add(figure, name, line, style(index), unit)
    figure.update_layout(showlegend=False, hovermode="x unified" if axis is Axis.STEPS else "closest")
    figure.update_xaxes(title={"text": _TITLES[axis]})
    if quantity.is_share:
        figure.update_yaxes(tickformat=".0%")
    return figure


def _add(figure: go.Figure, name: str, line: Line, look: Style, unit: float) -> None:
    x = line.x / np.float32(unit)
    label = escape(escape_control_characters(name))
    if line.low is not None and line.high is not None:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "showlegend": False}
        figure.add_trace(go.Scatter(x=x, y=line.low, name=f"{label}, least", **edge))
        filled = {"fill": "tonexty", "fillcolor": figures.faded(look.colour, 0.16)}
        figure.add_trace(go.Scatter(x=x, y=line.high, name=f"{label}, largest", **edge, **filled))
    figure.add_trace(
        go.Scatter(
            x=x,
            y=line.y,
            name=label,
            mode="lines" if x.size > 1 else "markers",
            line={"color": look.colour, "width": 2, "dash": look.dash},
            marker={"color": look.colour},
            hovertemplate="%{y:.4~g}",
        )
    )


def _series(run_id: str, quantities: Sequence[Quantity]) -> Mapping[str, list[MetricPoint]]:
    keys = [quantity.key for quantity in quantities if quantity.key != HELD_OUT]
    held_out = [row for row in ask(metrics.list_evaluations, run_id) if row.question_set == HELD_OUT]
    return metric_series(run_id, keys) | {HELD_OUT: [MetricPoint(row.step, row.avg_at_n) for row in held_out]}
