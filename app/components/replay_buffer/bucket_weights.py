"""How often each bucket is drawn under mu and sigma: the chart beside the form."""

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.widgets import figures
from exgrpo_core import bucket_probabilities


def show(rollouts_per_question: int, center: float, spread: float, meaning: str) -> None:
    """Show the probability of every bucket, which `meaning` names, when all buckets hold questions."""
    rates = np.arange(1, rollouts_per_question) / rollouts_per_question
    shares = [float(value) for value in bucket_probabilities(rates, center, spread)]
    colours = theme.palette()
    figure = figures.new_figure(height=170)
    figure.add_trace(
        go.Bar(
            x=[f"{correct}/{rollouts_per_question}" for correct in range(1, rollouts_per_question)],
            y=shares,
            marker={"color": colours.replay, "cornerradius": 3},
            hovertemplate="bucket %{x}: %{y:.1%}<extra></extra>",
        )
    )
    figure.update_layout(hovermode="closest", bargap=0.25)
    figure.update_xaxes(title=None, type="category")
    figure.update_yaxes(tickformat=".0%")
    st.markdown(f"**Bucket draws** &nbsp; :gray[:small[probability by {meaning}]]")
    st.plotly_chart(
        figure,
        key="bucket-weights",
        config={"displayModeBar": False},
        alt="Bars: probability that a replayed question comes from each bucket",
    )
    st.caption(f"Largest over smallest weight: {max(shares) / min(shares):.3g}, when no bucket is empty.")
