"""Figures of a study as static SVG: intervals over seeds, and learning curves cell by cell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from jobs.studies.intervals import MeanInterval
from jobs.studies.markup import element

LABEL_WIDTH = 230
PLOT_WIDTH = 560
ROW_HEIGHT = 24
MARGIN = 34
PANEL_WIDTH = 230
PANEL_HEIGHT = 120
PANELS_IN_ROW = 4
NUM_TICKS = 5


@dataclass(frozen=True, slots=True)
class Axis:
    """A linear map from values to places."""

    low: float
    high: float
    start: float
    end: float

    def place(self, value: float) -> float:
        """Return where a value stands."""
        return self.start + (value - self.low) / (self.high - self.low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Return round values inside the axis."""
        raw = (self.high - self.low) / NUM_TICKS
        unit = 10.0 ** math.floor(math.log10(raw))
        step = unit * min(factor for factor in (1, 2, 5, 10) if factor * unit >= raw)
        first = math.ceil(self.low / step)
        return [number * step for number in range(first, math.floor(self.high / step + 1e-9) + 1)]


@dataclass(frozen=True, slots=True)
class Panel:
    """One small chart of curves: each seed's and their mean, by step."""

    title: str
    seeds: Sequence[Mapping[int, float]]
    mean: Mapping[int, float]


def interval_figure(rows: Sequence[tuple[str, MeanInterval]], baseline: float | None) -> Element:
    """Return one row an interval: seeds as small dots, mean and 95% interval over them, the baseline as a line."""
    ends = [end for _, item in rows for end in (*item.values, *_interval_ends(item))]
    axis = _padded(ends + ([] if baseline is None else [baseline]), LABEL_WIDTH, LABEL_WIDTH + PLOT_WIDTH)
    height = ROW_HEIGHT * len(rows) + MARGIN
    drawn: list[Element] = []
    for tick in axis.ticks():
        x = axis.place(tick)
        drawn.append(element("line", x1=x, x2=x, y1=0, y2=height - MARGIN, class_="axis"))
        drawn.append(element("text", f"{tick:g}", x=x, y=height - MARGIN + 18, text_anchor="middle"))
    if baseline is not None:
        x = axis.place(baseline)
        drawn.append(element("line", x1=x, x2=x, y1=0, y2=height - MARGIN, class_="base"))
    for number, (label, own) in enumerate(rows):
        drawn += _interval_row(label, own, axis, ROW_HEIGHT * (number + 0.5))
    return _svg(LABEL_WIDTH + PLOT_WIDTH + MARGIN, height, drawn)


def curve_panels(panels: Sequence[Panel], baseline: Mapping[int, float]) -> Element:
    """Return small charts side by side on one scale: seeds thin, their mean thick, the baseline's mean dashed."""
    curves = [baseline, *(curve for panel in panels for curve in (*panel.seeds, panel.mean))]
    steps = [float(step) for curve in curves for step in curve]
    values = [value for curve in curves for value in curve.values()]
    num_rows = math.ceil(len(panels) / PANELS_IN_ROW)
    drawn: list[Element] = []
    for number, panel in enumerate(panels):
        left, top = PANEL_WIDTH * (number % PANELS_IN_ROW), (PANEL_HEIGHT + MARGIN) * (number // PANELS_IN_ROW)
        x = Axis(min(steps), max(max(steps), min(steps) + 1), left + 30, left + PANEL_WIDTH - 8)
        y = _padded(values, top + PANEL_HEIGHT, top + 18)
        drawn.append(element("text", panel.title, x=left + 30, y=top + 12))
        drawn += _frame(x, y)
        drawn += [_line(curve, x, y, "thin") for curve in panel.seeds]
        drawn += [_line(baseline, x, y, "base"), _line(panel.mean, x, y, "curve")]
    return _svg(PANEL_WIDTH * min(PANELS_IN_ROW, len(panels)), (PANEL_HEIGHT + MARGIN) * num_rows, drawn)


def _interval_row(label: str, own: MeanInterval, axis: Axis, y: float) -> list[Element]:
    low, high = _interval_ends(own)
    return [
        element("text", label, x=LABEL_WIDTH - 10, y=y + 4, text_anchor="end"),
        *(element("circle", cx=axis.place(value), cy=y, r=3, class_="seed") for value in own.values),
        element("line", x1=axis.place(low), x2=axis.place(high), y1=y, y2=y, class_="range"),
        element("circle", cx=axis.place(own.mean), cy=y, r=4.5, class_="mean"),
    ]


def _interval_ends(own: MeanInterval) -> tuple[float, float]:
    half = 0.0 if math.isnan(own.half) else own.half
    return own.mean - half, own.mean + half


def _padded(values: Sequence[float], start: float, end: float) -> Axis:
    low, high = min(values), max(values)
    margin = 0.05 * (high - low) or 0.5
    return Axis(low - margin, high + margin, start, end)


def _frame(x: Axis, y: Axis) -> list[Element]:
    drawn = [element("line", x1=x.start, x2=x.end, y1=y.start, y2=y.start, class_="axis")]
    for tick in y.ticks():
        drawn.append(element("line", x1=x.start, x2=x.end, y1=y.place(tick), y2=y.place(tick), class_="axis"))
        drawn.append(element("text", f"{tick:g}", x=x.start - 4, y=y.place(tick) + 4, text_anchor="end", class_="soft"))
    ends = ((x.low, "start"), (x.high, "end"))
    return drawn + [
        element("text", f"{value:g}", x=x.place(value), y=y.start + 15, text_anchor=anchor, class_="soft")
        for value, anchor in ends
    ]


def _line(curve: Mapping[int, float], x: Axis, y: Axis, name: str) -> Element:
    points = " ".join(f"{x.place(step):.1f},{y.place(value):.1f}" for step, value in sorted(curve.items()))
    return element("polyline", points=points, class_=name)


def _svg(width: float, height: float, drawn: Sequence[Element]) -> Element:
    return element("svg", *drawn, viewBox=f"0 0 {width:g} {height:g}", width=width, height=height, role="img")
