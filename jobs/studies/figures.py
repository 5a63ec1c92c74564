"""Figures of a study by Plotly: intervals over seeds, and learning curves cell by cell."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from jobs.studies.intervals import MeanInterval

MEAN, SEED, BASELINE = "#3b7ddd", "#8a94a6", "#8a94a6"
"""Colours that are seen on a white and on a dark page."""
ROW_HEIGHT, PANEL_HEIGHT, MARGIN = 26, 170, 60
PANELS_IN_ROW = 4


@dataclass(frozen=True, slots=True)
class Panel:
    """One small chart of curves: each seed's and their mean, by step."""

    title: str
    seeds: Sequence[Mapping[int, float]]
    mean: Mapping[int, float]


def interval_figure(rows: Sequence[tuple[str, MeanInterval]], baseline: float | None) -> go.Figure:
    """Return one row an interval: seeds as small dots, mean and 95% interval over them, the baseline as a line."""
    seeds = [(label, value) for label, interval in rows for value in interval.values]
    halves = [None if math.isnan(interval.half) else interval.half for _, interval in rows]
    figure = go.Figure(layout={"height": ROW_HEIGHT * len(rows) + MARGIN})
    figure.add_scatter(
        x=[value for _, value in seeds], y=[label for label, _ in seeds], name="seed", mode="markers",
        marker={"color": SEED, "size": 6, "opacity": 0.6},
    )  # fmt: skip
    figure.add_scatter(
        x=[interval.mean for _, interval in rows], y=[label for label, _ in rows], name="mean", mode="markers",
        marker={"color": MEAN, "size": 9}, error_x={"array": halves, "color": MEAN, "thickness": 2},
    )  # fmt: skip
    if baseline is not None:
        figure.add_vline(x=baseline, line={"color": BASELINE, "dash": "dash", "width": 1})
    figure.update_traces(hovertemplate="%{y}: %{x:.1f}")
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    return figure


def curve_panels(panels: Sequence[Panel], baseline: Mapping[int, float]) -> go.Figure:
    """Return small charts side by side on one scale: seeds thin, their mean thick, the baseline's mean dashed."""
    num_rows = math.ceil(len(panels) / PANELS_IN_ROW)
    cells: list[dict[str, str] | None] = [{}] * len(panels)
    cells += [None] * (PANELS_IN_ROW * num_rows - len(panels))
    figure = make_subplots(
        num_rows, PANELS_IN_ROW, specs=[cells[at : at + PANELS_IN_ROW] for at in range(0, len(cells), PANELS_IN_ROW)],
        subplot_titles=[panel.title for panel in panels], horizontal_spacing=0.04, vertical_spacing=0.35 / num_rows,
    )  # fmt: skip
    for number, panel in enumerate(panels):
        lines = [("seed", curve, {"color": SEED, "width": 1}, 0.45) for curve in panel.seeds]
        lines += [("baseline", baseline, {"color": BASELINE, "width": 1.5, "dash": "dash"}, 1.0)]
        lines += [("mean", panel.mean, {"color": MEAN, "width": 2}, 1.0)]
        for name, curve, line, opacity in lines:
            steps = sorted(curve)
            figure.add_scatter(
                x=steps, y=[curve[step] for step in steps], name=name, mode="lines", line=line, opacity=opacity,
                row=number // PANELS_IN_ROW + 1, col=number % PANELS_IN_ROW + 1,
            )  # fmt: skip
    figure.update_traces(hovertemplate="step %{x}: %{y:.1f}")
    for number in range(2, len(panels) + 1):
        figure.layout[f"xaxis{number}"].matches = "x"
        figure.layout[f"yaxis{number}"].matches = "y"
    figure.update_annotations(font={"size": 12})
    figure.update_layout(height=PANEL_HEIGHT * num_rows + MARGIN)
    return figure
