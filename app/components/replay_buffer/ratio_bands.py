"""How the importance ratios of replayed trajectories are distributed, step by step."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from app import theme
from app.components.widgets import curve_view, figures
from app.components.widgets.curve_view import Drawing
from db.rows.runs import MetricPoint

_BANDS = ((0, 100, "least to largest", 0.14), (25, 75, "middle half", 0.30))


def show(ratios: Mapping[int, Sequence[float]], key: str, drawing: Drawing) -> None:
    """Show the median and two bands of the trajectories' mean ratios over the steps."""
    figures.show_card(
        "Importance ratios by trajectory",
        "mean π now / π then, logarithmic",
        bands(ratios, drawing),
        key,
        "Median, middle half and range of replayed trajectories' mean importance ratios over steps",
    )


def bands(ratios: Mapping[int, Sequence[float]], drawing: Drawing) -> go.Figure | None:
    """Return median, middle half and range; None where nothing was replayed."""
    steps = [step for step, values in ratios.items() if len(values)]
    if not steps:
        return None
    colour = theme.palette().replay
    figure = figures.new_figure()
    x = drawing.line([MetricPoint(step, 0.0) for step in steps]).x
    for low, high, name, opacity in _BANDS:
        edge = {"mode": "lines", "line": {"width": 0}, "hoverinfo": "skip", "legendgroup": name}
        figure.add_trace(go.Scatter(x=x, y=_quantile(ratios, steps, low), name=f"{low}%", showlegend=False, **edge))
        figure.add_trace(
            go.Scatter(
                x=x, y=_quantile(ratios, steps, high), name=name, fill="tonexty",
                fillcolor=figures.faded(colour, opacity), **edge,
            )
        )  # fmt: skip
    figure.add_trace(
        go.Scatter(
            x=x,
            y=_quantile(ratios, steps, 50),
            name="median",
            mode="lines" if len(steps) > 1 else "markers",
            line={"color": colour, "width": 2},
            hovertemplate="%{y:.4~g}",
        )
    )
    curve_view.dress(figure, replace(drawing.view, has_log_axis=True), drawing.span)
    return figure


def _quantile(ratios: Mapping[int, Sequence[float]], steps: Sequence[int], percent: int) -> np.ndarray:
    return np.array([np.percentile(ratios[step], percent) for step in steps], dtype=np.float32)
