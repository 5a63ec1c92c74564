"""Histograms of rewards over steps: how many responses of a step had which reward, or part of it."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import plotly.graph_objects as go

from exgrpo.app import theme
from exgrpo.app.components.widgets import curve_view, figures
from exgrpo.app.components.widgets.curve_view import CurveView
from exgrpo.app.formats import escape_control_characters, hover
from exgrpo.db.queries.metrics import WHOLE_REWARD
from exgrpo.db.rows.runs import MetricPoint, RewardCountRow

MIN_SAMPLES = 30
"""Fewer rewards are drawn as points."""


def show(part: str, counts: Sequence[RewardCountRow], view: CurveView) -> None:
    """Show the rewards of a run's steps, or a part of them by name."""
    title = "Rewards" if part == WHOLE_REWARD else f"Reward part: {escape_control_characters(part)}"
    alt = f"{title}: how many fresh responses of each step had which"
    figures.show_card(title, "fresh responses of a step", histogram(counts, view), f"curve-rewards-{part}", alt)


def histogram(counts: Sequence[RewardCountRow], view: CurveView) -> go.Figure | None:
    """Return a map of steps against rewards; of few responses a point each; None where steps have no place on x."""
    steps = sorted({row.step for row in counts})
    x = view.line([MetricPoint(step, 0.0) for step in steps]).x
    if not x.size:
        return None
    figure = figures.new_figure()
    place_of = {step: place for place, step in enumerate(steps)}
    colours = theme.palette()
    if sum(row.num_responses for row in counts) < MIN_SAMPLES:
        each = [row for row in counts for _ in range(row.num_responses)]
        figure.add_trace(
            go.Scatter(
                x=x[[place_of[row.step] for row in each]], y=[row.least for row in each], mode="markers",
                marker={"color": colours.fresh, "size": 7, "opacity": 0.5},
                hovertemplate=f"%{{y:{hover(row.least for row in each)}}}<extra></extra>",
            )
        )  # fmt: skip
    else:
        bins = sorted({(row.least, row.largest) for row in counts})
        cells = np.zeros((len(bins), len(steps)), dtype=np.int32)
        for row in counts:
            cells[bins.index((row.least, row.largest)), place_of[row.step]] = row.num_responses
        names = [f"{low:z.6g}" if low == high else f"{low:z.6g} to {high:z.6g}" for low, high in bins]
        figure.add_trace(
            go.Heatmap(
                x=x, y=names, z=cells, zmin=0, colorscale=[[0, colours.empty_cell], [1, colours.full_cell]],
                colorbar=figures.colour_bar("responses"),
                hovertemplate="reward %{y} at %{x}<br>responses: %{z:,}<extra></extra>",
            )
        )  # fmt: skip
        figure.update_yaxes(showgrid=False, type="category")
    curve_view.dress(figure, replace(view, has_log_axis=False))
    figure.update_layout(hovermode="closest")
    return figure
