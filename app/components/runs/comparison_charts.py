"""Curves of several runs in one pair of axes each, and the legend that they share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape

import plotly.graph_objects as go
import streamlit as st

from app import address, theme
from app.components.runs.comparison import Group, mean_line
from app.components.widgets import curve_view, curves, figures, own_charts
from app.components.widgets.curve_view import TITLES, CurveView, Line, aligned, in_unit, paired, span_of
from app.components.widgets.own_charts import Member, OwnChart
from app.formats import escape_control_characters, literal
from app.queries.answers import ask
from app.queries.runs import axis_points, metric_series
from db.queries import metrics
from db.rows.display_names import FRESH_PASS_RATE, held_out_score
from db.rows.runs import MetricPoint
from exgrpo_core.step_report import METRIC_LABELS, METRICS

HELD_OUT = "held_out"
"""The held-out score among the keys of metrics."""
HIDDEN = "hide"
"""The parameter of the address with the curves that the legend hides."""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that one chart compares between runs."""

    key: str
    title: str
    unit: str
    is_share: bool = False


QUANTITIES = (
    Quantity("reward/pass_at_1_fresh", FRESH_PASS_RATE, "share of rollouts", is_share=True),
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


def show(drawn: Sequence[Group], view: CurveView, more: Sequence[str], own: Sequence[OwnChart]) -> None:
    """Show the legend and a chart a quantity in two columns; a group of several runs is a mean within its range."""
    show_quantities(drawn, view, (*QUANTITIES, *map(quantity_of, more)), own)


def quantity_of(key: str) -> Quantity:
    """Return the quantity of a metric, with the title and unit of its chart where it has one."""
    for quantity in QUANTITIES:
        if quantity.key == key:
            return quantity
    for chart in curves.CHARTS:
        for curve in chart.curves:
            if curve.key == key:
                title = chart.title if len(chart.curves) == 1 else f"{chart.title}: {curve.name}"
                return Quantity(key, title, chart.unit, chart.is_share)
    return Quantity(key, METRIC_LABELS[key], METRICS[key], METRICS[key].startswith("share"))


def show_quantities(
    drawn: Sequence[Group], view: CurveView, quantities: Sequence[Quantity], own: Sequence[OwnChart] = ()
) -> None:
    """Show the legend and a chart of each of these quantities, then the reader's own."""
    hidden = legend(drawn)
    run_ids = [run_id for group in drawn for run_id in group.run_ids]
    axes = {run_id: axis_points(run_id, view.axis) for run_id in run_ids}
    of_own = [key for chart in own for key in (*chart.keys, chart.over) if key]
    series = {run_id: _series(run_id, quantities, of_own) for run_id in run_ids}
    names = [group.name for group in drawn]

    def line_of(group: Group, key: str, over: str | None = None) -> Line | None:
        if group.name in hidden:
            return None
        if over is not None:
            return mean_line([paired(series[run_id][key], series[run_id][over]) for run_id in group.run_ids[:1]])
        return mean_line([in_unit(aligned(series[run_id][key], axes[run_id]), view.axis) for run_id in group.run_ids])

    lines = {quantity.key: [line_of(group, quantity.key) for group in drawn] for quantity in quantities}
    span = span_of([line for each in lines.values() for line in each if line is not None])
    columns = st.columns(2, gap="small")
    for index, quantity in enumerate(quantities):
        with columns[index % 2]:
            figures.show_card(
                quantity.title,
                quantity.unit,
                figure_of(names, lines[quantity.key], quantity, view, span),
                f"compare-{quantity.key.replace('/', '-')}-{view.axis}",
                f"{quantity.title} of every run against {TITLES[view.axis]}",
            )
    members = [
        Member(group.name, theme.look_of_run(index).colour, partial(line_of, group))
        for index, group in enumerate(drawn)
    ]
    for index, chart in enumerate(own, start=len(quantities)):
        with columns[index % 2]:
            own_charts.show(chart, members, view, f"compare-own-{index}-{view.axis}")


def legend(drawn: Sequence[Group]) -> set[str]:
    """Show each name after a piece of its curve, as a button that hides it and shows it; return the hidden ones."""
    wanted = set(st.query_params.get(HIDDEN, "").split(","))
    hidden = {group.name for group in drawn if group.run_ids[0] in wanted}
    rules = []
    with st.container(horizontal=True, gap="small", key="legend"):
        for index, group in enumerate(drawn):
            look, is_hidden = theme.look_of_run(index), group.name in hidden
            line = f"content:'';width:1.6rem;margin-right:.4rem;border-top:3px {theme.DASHES[look.dash]} {look.colour}"
            rules.append(f".st-key-legend-{index} button::before{{{line}}}")
            if is_hidden:
                rules.append(f".st-key-legend-{index} button{{opacity:.45;text-decoration:line-through}}")
            st.button(
                literal(group.name), key=f"legend-{index}", type="tertiary", on_click=_toggle, args=(group.run_ids[0],),
                help="Show this curve again" if is_hidden else "Hide this curve in all charts",
            )  # fmt: skip
        st.html(f"<style>{''.join(rules)}</style>")
    return hidden


def _toggle(run_id: str) -> None:
    hidden = [name for name in st.query_params.get(HIDDEN, "").split(",") if name]
    hidden = [name for name in hidden if name != run_id] if run_id in hidden else [*hidden, run_id]
    address.put({HIDDEN: ",".join(hidden) or None})


def figure_of(
    names: Sequence[str],
    lines: Sequence[Line | None],
    quantity: Quantity,
    view: CurveView,
    span: tuple[float, float] | None,
) -> go.Figure | None:
    """Return one curve per name, with its range where it is a mean of several runs; None without any value."""
    if not any(line is not None for line in lines):
        return None
    figure = figures.new_figure()
    for index, (name, line) in enumerate(zip(names, lines, strict=True)):
        if line is not None:
            label = escape(escape_control_characters(name))
            figures.add_line(figure, label, line, theme.look_of_run(index), view, is_share=quantity.is_share)
    figure.update_layout(showlegend=False)
    if quantity.is_share:
        figures.show_shares(figure)
    curve_view.dress(figure, view, span)
    return figure


def _series(run_id: str, quantities: Sequence[Quantity], more: Sequence[str]) -> Mapping[str, list[MetricPoint]]:
    keys = dict.fromkeys([*(quantity.key for quantity in quantities if quantity.key != HELD_OUT), *more])
    held_out = [row for row in ask(metrics.list_evaluations, run_id) if row.question_set == HELD_OUT]
    return metric_series(run_id, list(keys)) | {HELD_OUT: [MetricPoint(row.step, row.avg_at_n) for row in held_out]}
