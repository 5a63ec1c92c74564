"""The replay buffer over the steps, bucket by bucket."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.widgets import exports, figures
from app.components.widgets.figures import figure_rows
from db.rows.algorithm_of_spec import bucket_meaning
from db.rows.runs import BucketRow

MAX_COLUMNS = 240
_QUANTITIES = {"Questions": "questions in the bucket", "Draws": "questions drawn from the bucket"}


def show(rows: Sequence[BucketRow], algorithm: Mapping[str, Any], key: str, num_retired: int = 0) -> str:
    """Show buckets against steps, coloured by size or by draws; return the chosen quantity.

    `num_retired` explains a buffer that never held a question because every solved question retired at once.
    """
    with st.container(border=True, gap="xxsmall", key=f"card-{key}"):
        with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
            meaning = bucket_meaning(algorithm)
            st.markdown(f"**Buckets** &nbsp; :gray[:small[questions by {meaning}]]", width="stretch")
            chosen = st.segmented_control(
                "Colour by",
                list(_QUANTITIES),
                default="Questions",
                required=True,
                key="buckets",
                bind="query-params",
                label_visibility="collapsed",
                width="content",
            )
            figure = heatmap(rows, algorithm["rollouts_per_question"], chosen)
            if figure is not None:
                exports.show(lambda: figure_rows(figure), f"buckets-{chosen.lower()}", key)
        if figure is None:
            st.markdown(f":gray[{_why_empty(num_retired)}]")
        else:
            figures.mark_whole_steps(figure)
            st.plotly_chart(
                figure,
                key=f"{key}-{chosen}",
                config={"displaylogo": False},
                alt=f"Heat-map of steps against buckets, coloured by {_QUANTITIES[chosen]}",
            )
    return chosen


def _why_empty(num_retired: int) -> str:
    if num_retired:
        return f"No bucket held a question: the {num_retired:,} solved in all rollouts are retired, none is left over."
    return "The buffer is empty. Collection begins with the delayed start, when Pass@1 of a batch is high enough."


def heatmap(rows: Sequence[BucketRow], rollouts_per_question: int, quantity: str) -> go.Figure | None:
    """Return the heat-map, or None when no bucket ever held a question."""
    steps = _spread(sorted({row.step for row in rows}), MAX_COLUMNS)
    if not steps or not any(row.num_questions for row in rows):
        return None
    values = {(row.step, row.bucket): row.num_drawn if quantity == "Draws" else row.num_questions for row in rows}
    top = max(max(row.bucket for row in rows if row.num_questions), rollouts_per_question - 1)
    buckets = list(range(top + 1))
    colours = theme.palette()
    figure = figures.new_figure(height=60 + 27 * len(buckets))
    figure.add_trace(
        go.Heatmap(
            x=steps,
            y=[f"{bucket}/{rollouts_per_question}" for bucket in buckets],
            z=np.array([[values.get((step, bucket), 0) for step in steps] for bucket in buckets], dtype=np.int32),
            colorscale=[[0, colours.empty_cell], [1, colours.full_cell]],
            zmin=0,
            ygap=2,
            colorbar={"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 11}},
            hovertemplate=f"step %{{x}}<br>bucket %{{y}}<br>%{{z}} {_QUANTITIES[quantity]}<extra></extra>",
        )
    )
    figure.update_layout(hovermode="closest")
    figure.update_yaxes(showgrid=False, type="category")
    return figure


def _spread(steps: list[int], most: int) -> list[int]:
    """Return at most `most` steps, evenly spread, the last one included."""
    if len(steps) <= most:
        return steps
    stride = -(-len(steps) // most)
    return steps[::-1][::stride][::-1]
