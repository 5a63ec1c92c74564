"""What readers put together: charts of several metrics, or of metrics over another one."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import address, theme
from exgrpo.app.components.widgets import curve_view, figures
from exgrpo.app.components.widgets.curve_view import CurveView, Line
from exgrpo.app.theme import Look
from exgrpo_core.step_report import METRIC_LABELS, METRICS, SHARES

ADDRESS = "charts"
MAX_METRICS = 4
MAX_CHARTS = 8
_SAME_X = "the axis of all charts"


@dataclass(frozen=True, slots=True)
class OwnChart:
    """Metrics by key, drawn over the metric `over`, None for the axis of all charts."""

    keys: tuple[str, ...]
    over: str | None = None

    @property
    def title(self) -> str:
        """The labels of its metrics."""
        names = ", ".join(METRIC_LABELS[key] for key in self.keys)
        return f"{names} over {METRIC_LABELS[self.over].lower()}" if self.over else names

    def as_text(self) -> str:
        """Return how the address writes it: `loss/policy+loss/kl~tokens/generated`."""
        return "+".join(self.keys) + (f"~{self.over}" if self.over else "")


LineOf = Callable[[int, str, str | None], Line | None]
"""Gives a metric of the run with this index, or the metric over another one; None where it was not recorded."""


def of_address() -> list[OwnChart]:
    """Return the charts that the address asks for; what names no metric is left out."""
    charts = []
    for text in st.query_params.get(ADDRESS, "").split(","):
        names, _, over = text.partition("~")
        keys = tuple(key for key in dict.fromkeys(names.split("+")) if key in METRICS)
        if keys:
            charts.append(OwnChart(keys[:MAX_METRICS], over if over in METRICS else None))
    return charts[:MAX_CHARTS]


def choose() -> tuple[CurveView, list[OwnChart]]:
    """Show how curves are drawn, with own charts in the menu; return the view and the own charts."""
    charts = of_address()

    def show_more() -> None:
        st.multiselect(
            "Own chart of", list(METRICS), format_func=METRIC_LABELS.__getitem__, max_selections=MAX_METRICS,
            key="own-chart-metrics", select_all=False, placeholder="One to four metrics on the same axes",
        )  # fmt: skip
        st.selectbox(
            "Own chart over", [None, *METRICS], format_func=lambda key: METRIC_LABELS[key] if key else _SAME_X,
            key="own-chart-over",
        )  # fmt: skip
        st.button(
            "Add chart", key="own-chart-add", on_click=_add, args=(charts,), width="stretch",
            disabled=len(charts) >= MAX_CHARTS,
        )  # fmt: skip

    return curve_view.choose(show_more), charts


def show(chart: OwnChart, names: Sequence[str], line_of: LineOf, view: CurveView, key: str) -> None:
    """Show one chart of the runs with these names, and the button that takes it away."""
    unit = METRICS[chart.keys[0]] if len(chart.keys) == 1 else "each in its unit"
    figure = figure_of(chart, names, line_of, view)
    figures.show_card(chart.title, unit, figure, key, f"{chart.title}, a chart of your own")
    st.button(
        "Remove chart", icon=":material/close:", type="tertiary", key=f"{key}-remove", on_click=_remove, args=(chart,)
    )


def figure_of(chart: OwnChart, names: Sequence[str], line_of: LineOf, view: CurveView) -> go.Figure | None:
    """Return one curve a run and metric: runs differ by colour, their metrics by dashes; None without values."""
    figure, lines = figures.new_figure(), []
    is_share, is_alone = SHARES.issuperset(chart.keys), len(names) == 1
    over_metric = CurveView(smoothing=view.smoothing)
    for number, metric in enumerate(chart.keys):
        for index, name in enumerate(names):
            line = line_of(index, metric, chart.over)
            if line is None or not line.x.size:
                continue
            lines.append(line)
            look = theme.look_of_run(number if is_alone else index)
            look = look if is_alone else Look(look.colour, list(theme.DASHES)[number])
            label = METRIC_LABELS[metric] if is_alone else name
            label = label if is_alone or len(chart.keys) == 1 else f"{label}: {METRIC_LABELS[metric]}"
            figures.add_line(figure, label, line, look, over_metric if chart.over else view, is_share=is_share)
    if not lines:
        return None
    if is_share:
        figures.show_shares(figure)
    figure.update_yaxes(rangemode="normal")
    if chart.over is None:
        curve_view.dress(figure, view.spanning(lines))
    else:
        figure.update_xaxes(title={"text": METRIC_LABELS[chart.over]})
        figure.update_layout(hovermode="closest")
    figure.update_layout(showlegend=len(lines) > 1)
    return figure


def _add(charts: Sequence[OwnChart]) -> None:
    keys = tuple(st.session_state["own-chart-metrics"])
    if keys:
        _write([*charts, OwnChart(keys, st.session_state["own-chart-over"])])
        st.session_state["own-chart-metrics"] = []


def _remove(chart: OwnChart) -> None:
    _write([other for other in of_address() if other != chart])


def _write(charts: Sequence[OwnChart]) -> None:
    address.put({ADDRESS: ",".join(chart.as_text() for chart in charts) or None})
