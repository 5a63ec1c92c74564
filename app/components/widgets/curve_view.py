"""How curves are drawn on Run and Compare: numbers, axis, smoothing and zoom; the choices are in the address."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.widgets import address_choice
from exgrpo.app.queries.runs import Axis
from exgrpo.db.rows.runs import EvaluationRow, MetricPoint
from exgrpo_core.types import Float64Array

MAX_SMOOTHING = 0.99
SMOOTHINGS = (0.0, 0.6, 0.9)
"""Weights of the past in an exponential moving average that pages offer; an address may have any up to the greatest."""
LOG_AXIS = "Log"


SEEDS, INTERVAL = ("least seed", "largest seed"), ("95% from", "95% to")
"""Of a mean over runs the least and the largest, of a score the interval over questions."""
AtStep = TypeVar("AtStep", MetricPoint, EvaluationRow)


@dataclass(frozen=True, slots=True)
class Line:
    """One curve, and of some curves the ends of a band."""

    x: Float64Array
    y: Float64Array
    low: Float64Array | None = None
    high: Float64Array | None = None
    band: tuple[str, str] = SEEDS
    """What the ends of the band are, as a noun for each: they are in exports."""
    num_before: int = 0
    """Of the points those before the run branched from its parent."""


def aligned(points: Sequence[MetricPoint], axis: Sequence[MetricPoint] | None) -> Line:
    """Return a metric against steps, or against the value of `axis` at each step; nothing where `axis` is empty."""
    if axis is not None and not axis:
        points = []
    steps = np.array([point.step for point in points], dtype=np.float64)
    x = steps
    if axis is not None:
        known = np.array([(point.step, point.value) for point in axis], dtype=np.float64).reshape(-1, 2)
        x = np.interp(steps, [0, *known[:, 0]], [0, *known[:, 1]])
    return Line(x, np.array([point.value for point in points], dtype=np.float64))


def paired(points: Sequence[MetricPoint], other: Sequence[MetricPoint]) -> Line:
    """Return a metric over another one, at the steps that have both, in their order."""
    by_step = dict(other)
    both = [(by_step[step], value) for step, value in points if step in by_step]
    values = np.array(both, dtype=np.float64).reshape(-1, 2)
    return Line(values[:, 0], values[:, 1])


def smoothed(line: Line, weight: float) -> Line:
    """Return the exponential moving average with this weight on the past, without the pull of its start to zero."""
    if not weight:
        return line
    low, high = (None if bound is None else _average(bound, weight) for bound in (line.low, line.high))
    return replace(line, y=_average(line.y, weight), low=low, high=high)


def cut(line: Line, window: tuple[float, float] | None) -> Line:
    """Return the part of a curve within a window of x, and the point at each side of it."""
    if window is None or not line.x.size:
        return line
    is_inside = (line.x >= window[0]) & (line.x <= window[1])
    is_kept = is_inside.copy()
    is_kept[1:] |= is_inside[:-1]
    is_kept[:-1] |= is_inside[1:]
    low, high = (None if bound is None else bound[is_kept] for bound in (line.low, line.high))
    return Line(line.x[is_kept], line.y[is_kept], low, high, line.band, int(is_kept[: line.num_before].sum()))


def _average(values: Float64Array, weight: float) -> Float64Array:
    averages, total, share = np.full(values.shape, np.nan, dtype=np.float64), 0.0, 0.0
    for index, value in enumerate(values.tolist()):
        if np.isfinite(value):
            total = weight * total + (1 - weight) * value
            share = weight * share + (1 - weight)
            averages[index] = total / share
    return averages


AXES = {
    "Steps": Axis.STEPS,
    "Fresh rollouts": Axis.ROLLOUTS,
    "Generated tokens": Axis.TOKENS,
    "Training time": Axis.TIME,
    "Wall clock": Axis.CLOCK,
}
TITLES = {
    Axis.STEPS: "step",
    Axis.ROLLOUTS: "fresh rollouts",
    Axis.TOKENS: "generated tokens",
    Axis.TIME: "minutes of training steps",
    Axis.CLOCK: "minutes since the first step, pauses counted, a clock set back not",
}
_IN_MINUTES = frozenset({Axis.TIME, Axis.CLOCK})
_SECONDS_A_MINUTE = 60.0
_MARGIN = 0.015
_TINY, HUGE = 1e-4, 1e15
"""Values below and above have ticks with powers of ten."""


@dataclass(frozen=True, slots=True)
class CurveView:
    """How curves are drawn: what the reader chose, and for the curves of a run how far it had got after its steps."""

    axis: Axis = Axis.STEPS
    smoothing: float = 0.0
    has_log_axis: bool = False
    zoom: tuple[float, float] | None = None
    """The window along x, None for all of it."""
    shares_zoom: bool = False
    """Whether the page reads the window from its address, so that a zoom of one chart is that of all."""
    opens_step: bool = False
    """Whether a click on a chart over steps opens the step on the run's page."""
    axis_points: Sequence[MetricPoint] | None = None
    """The axis's value after each step of the run; None for steps themselves."""
    span: tuple[float, float] | None = None
    """Where charts next to each other begin and end."""
    branched_from: int | None = None
    """The last step of the parent that the run continues; None of a run that is no branch."""

    def own(self, points: Sequence[AtStep]) -> Sequence[AtStep]:
        """Return the points without those before the run branched."""
        branched_from = self.branched_from
        return points if branched_from is None else [point for point in points if point.step > branched_from]

    def line(self, points: Sequence[MetricPoint]) -> Line:
        """Return a metric against what the view asks for, in the unit that it shows."""
        line = aligned(points, self.axis_points)
        x = line.x / _SECONDS_A_MINUTE if self.axis in _IN_MINUTES else line.x
        return replace(line, x=x, num_before=max(0, len(x) - len(self.own(points))))

    def spanning(self, lines: Iterable[Line | None]) -> "CurveView":
        """Return this view with the span that holds all of these curves."""
        ends = [(float(line.x[0]), float(line.x[-1])) for line in lines if line is not None and line.x.size]
        return replace(self, span=(min(first for first, _ in ends), max(last for _, last in ends)) if ends else None)


WHOLE = CurveView()


def choose(show_more: Callable[[], None]) -> CurveView:
    """Show a menu of the axis and the other choices, and the zoom; return the choices.

    They are in the address as x, smooth, log and zoom. `show_more` shows what else is in the menu.
    """
    wanted = _of_address()
    with st.container(horizontal=True, vertical_alignment="center", gap="xsmall", key="curve-view"):
        shown = next(name for name, axis in AXES.items() if axis is wanted.axis)
        menu = st.popover(f"Charts over {shown.lower()}", icon=":material/tune:", key="curves-menu")
        show_zoom(wanted)
    with menu:
        st.segmented_control(
            "Horizontal axis", list(AXES), required=True,
            **address_choice.bound("x", shown, "curves-x", ["zoom"], "Steps"),
        )  # fmt: skip
        # Buttons as those before them: the browser would load ten more scripts for a slider and a switch.
        st.segmented_control(
            "Smoothing", sorted({*SMOOTHINGS, wanted.smoothing}), required=True,
            format_func=lambda weight: f"{weight:g}" if weight else "Raw",
            **address_choice.bound("smooth", wanted.smoothing, "curves-smooth", usual="0.0"),
        )  # fmt: skip
        st.session_state["curves-log"] = [LOG_AXIS] * wanted.has_log_axis
        st.pills(
            "Vertical axis", [LOG_AXIS], selection_mode="multi", key="curves-log",
            on_change=lambda: address.put({"log": "true" if st.session_state["curves-log"] else None}),
        )  # fmt: skip
        show_more()
    return wanted


def show_zoom(view: CurveView) -> None:
    """Show which part the charts are zoomed to, as the button that shows all again."""
    if view.zoom is not None:
        first, last = view.zoom
        st.button(
            f"{first:,.4g} to {last:,.4g}", icon=":material/zoom_out_map:", key="curves-zoom",
            on_click=address.put, args=({"zoom": None},), help="Show all; a double click on a chart does the same",
        )  # fmt: skip


def dress(figure: go.Figure, view: CurveView) -> None:
    """Give a chart the view's axes and window, which it shares with the charts of the page that have the same x.

    A drag zooms along x only; `chart.js` writes the window into the address, where all charts read it.
    """
    window = view.zoom
    if window is None and view.span is not None:
        first, last = view.span
        margin = _MARGIN * (last - first) or 0.5
        window = (first - margin, last + margin)
    figure.update_layout(
        uirevision=f"{view.axis} {view.zoom} {view.has_log_axis}",
        meta={"sharesZoom": view.shares_zoom, "opensStep": view.opens_step and view.axis is Axis.STEPS},
        hovermode="x unified" if view.axis is Axis.STEPS else "closest",
    )
    figure.update_xaxes(title={"text": TITLES[view.axis]}, range=window)
    if view.axis is Axis.STEPS:  # 20,000,001 instead of 20.000001M
        figure.update_xaxes(exponentformat="none", separatethousands=True)
    figure.update_yaxes(fixedrange=True, **(_log_axis(figure) if view.has_log_axis else {}))


def _log_axis(figure: go.Figure) -> dict[str, str]:
    """Return a logarithmic axis whose ticks show whole values, between powers of ten too.

    For curves over one or two powers of ten they are at 1, 2 and 5, since plotly's would overlap.
    """
    drawn = [np.asarray(trace.y, dtype=np.float64) for trace in figure.data if trace.y is not None]
    values = np.concatenate([np.empty(0), *drawn])
    positive = values[(values > 0) & np.isfinite(values)]
    least, greatest = (positive.min(), positive.max()) if positive.size else (1.0, 1.0)
    axis = {"type": "log", "rangemode": "normal"}
    if not figure.layout.yaxis.tickformat:
        axis["tickformat"] = ".2~e" if least < _TINY or greatest >= HUGE else ",.3~r"
    return axis | ({"dtick": "D2"} if 0.9 < np.log10(greatest) - np.log10(least) < 2.0 else {})


def _of_address() -> CurveView:
    query = st.query_params
    return CurveView(
        AXES.get(query.get("x", ""), Axis.STEPS), min(max(_number(query.get("smooth", "")) or 0.0, 0.0), MAX_SMOOTHING),
        query.get("log") == "true", _window(query.get("zoom", "")), shares_zoom=True,
    )  # fmt: skip


def _window(text: str) -> tuple[float, float] | None:
    first, _, last = text.partition(",")
    ends = _number(first), _number(last)
    return (ends[0], ends[1]) if ends[0] is not None and ends[1] is not None and ends[0] < ends[1] else None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if np.isfinite(value) else None
