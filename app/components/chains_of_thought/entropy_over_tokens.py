"""The policy's entropy over steps, of several runs side by side (the paper's figure)."""

from collections.abc import Mapping, Sequence

import plotly.graph_objects as go
import streamlit as st

from app.components.runs import comparison_charts
from app.components.widgets import figures, run_choice
from app.components.widgets.curve_view import aligned
from app.components.widgets.figures import Look
from app.formats import escape_control_characters
from app.queries.runs import metric_series
from db.rows.runs import MetricPoint, RunRow

KEY = "policy/entropy"


def show(row: RunRow) -> None:
    """Show the run's entropy and that of the runs chosen to compare; the choice is in the address."""
    st.caption("Runs to compare with")
    others = run_choice.choose_compared()
    names = {row.run_id: row.name} | {run_id: name for run_id, (_, name) in others.items()}
    series = {names[run_id]: metric_series(run_id, (KEY,))[KEY] for run_id in names}
    figures.show_card(
        "Policy entropy", "nats per token, mean of fresh rollouts", chart(series), "policy-entropy",
        f"Entropy of the policy over steps, one line each of {len(names)} runs",
    )  # fmt: skip


def chart(series: Mapping[str, Sequence[MetricPoint]]) -> go.Figure | None:
    """Return one line per run, distinguished by colour and, beyond six runs, by dashes."""
    drawn = {name: points for name, points in series.items() if points}
    if not drawn:
        return None
    figure = figures.new_figure(height=340)
    for index, (name, points) in enumerate(drawn.items()):
        look = comparison_charts.style(index)
        label = escape_control_characters(name).replace("<", "&lt;")
        figures.add_line(figure, label, aligned(points, None), Look(look.colour, look.dash))
    figure.update_layout(showlegend=True)
    return figure
