"""The last held-out score of runs as bars."""

import html

import numpy as np
import plotly.graph_objects as go

from app import theme
from app.components.paper.run_selection import RunSelection
from app.components.widgets import figures
from app.formats import escape_control_characters
from app.queries.answers import ask
from db.queries import metrics
from db.rows.score_intervals import half_interval_95

_PER_RUN = 34


def held_out_bars(selection: RunSelection) -> go.Figure | None:
    """Return one bar a run with its 95% interval; None where no run has held-out questions."""
    last = {}
    for run_id in selection.rows:
        held_out = [row for row in ask(metrics.list_evaluations, run_id) if row.question_set == "held_out"]
        if held_out:
            last[run_id] = held_out[-1]
    if not last:
        return None
    figure = figures.new_figure(height=_PER_RUN * len(last) + 80)
    run_ids = list(last)[::-1]
    colours = theme.palette()
    figure.add_trace(
        go.Bar(
            orientation="h",
            y=[html.escape(escape_control_characters(selection.names[run_id])) for run_id in run_ids],
            x=np.array([last[run_id].avg_at_n for run_id in run_ids], dtype=np.float32),
            error_x={
                "array": [half_interval_95(last[run_id].standard_error) for run_id in run_ids],
                "color": colours.text,
                "thickness": 1,
            },
            marker={"color": colours.held_out, "cornerradius": 3},
            hovertemplate="%{y}: %{x:.1%}<extra></extra>",
        )
    )
    figure.update_layout(hovermode="closest", showlegend=False, bargap=0.35)
    figure.update_xaxes(title={"text": "held-out score"}, tickformat=".0%", showgrid=True, rangemode="tozero")
    figure.update_yaxes(type="category")
    return figure
