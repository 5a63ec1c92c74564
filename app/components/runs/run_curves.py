"""All curves of a run, in the groups of the paper."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import streamlit as st

from app.components.replay_buffer import buffer_over_steps
from app.components.widgets import curves, own_charts
from app.components.widgets.curve_view import CurveView, Line, paired
from app.components.widgets.curves import Chart, Series
from app.components.widgets.own_charts import OwnChart
from db.rows.runs import EvaluationRow, MetricPoint

KEYS = (*curves.KEYS, *buffer_over_steps.KEYS)
"""Every metric that these charts need, to be read at once."""


def show(
    series: Series,
    evaluations: Sequence[EvaluationRow],
    ratios: Mapping[int, Sequence[float]] | None,
    view: CurveView,
    key: str,
    *,
    is_live: bool,
    titles: Mapping[str, str],
) -> None:
    """Show the scores across the page, then each group two charts a row; an ended run's without empty charts.

    `ratios` are those of replayed trajectories by step, None for a run that does not replay; `titles` are those of
    benchmarks that have another than their name.
    """
    scores = [MetricPoint(row.step, row.avg_at_n) for row in evaluations]
    view = view.spanning([view.line([points[0], points[-1]]) for points in [*series.values(), scores] if points])
    curves.card(curves.PASS_RATES, curves.pass_rates(series, evaluations, view, titles), key)
    for title, charts in curves.GROUPS.items():
        if ratios is None and title in curves.REPLAY_GROUPS:
            continue
        cards: list[Callable[[], None]] = [
            partial(_card, chart, series, view, key)
            for chart in charts
            if (is_live and not chart.is_hidden_if_empty) or any(series.get(curve.key) for curve in chart.curves)
        ]
        if title == curves.BUFFER_GROUP:
            cards.insert(0, lambda: buffer_over_steps.show_area(series, f"{key}-buffer-area", view))
        elif title == curves.RATIO_GROUP and ratios is not None:
            cards.append(lambda: buffer_over_steps.show_ratios(ratios, f"{key}-ratio-bands", view))
        if cards:
            show_cards(title, cards)


def show_own(charts: Sequence[OwnChart], series: Series, view: CurveView) -> None:
    """Show the charts that the reader put together, before all others."""

    def line_of(_index: int, key: str, over: str | None) -> Line:
        return paired(series[key], series[over]) if over else view.line(series[key])

    cards = [partial(own_charts.show, chart, [""], line_of, view, f"own-{index}") for index, chart in enumerate(charts)]
    if cards:
        show_cards("Own charts", cards)


def show_cards(title: str, cards: Sequence[Callable[[], None]]) -> None:
    """Show charts under a heading, two a row."""
    st.subheader(title, anchor=False)
    columns = st.columns(2, gap="small")
    for index, card in enumerate(cards):
        with columns[index % 2]:
            card()


def _card(chart: Chart, series: Series, view: CurveView, key: str) -> None:
    curves.card(chart, curves.figure_of(chart, series, view), key)
