"""What replays changed: drawn against undrawn questions of a bucket, and importance weights of trajectories."""

import math
from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.widgets import data_table, figures, notice
from app.formats import NONE_SHOWN, known
from db.rows.replays import Difference, DrawEffect, TrajectoryWeights
from db.statistics import Z_95

EXPLANATION = (
    "Within a bucket, chance decides which questions a step replays. **Drawn** questions were trained on once more, "
    "with a replay; **undrawn** ones of the same step and bucket were not trained on in that step. {values} "
    "Intervals are 95%, clustered by question. With no true effect, about 1 row in 20 still excludes 0. The two halves "
    "by the entropy of the replay also differ in their questions, which were not chosen at random."
)
_CHANGES = (
    "Changes are from the bucket k/K to the correct share at the next attempt. Questions that their draw's step "
    "retired have no next attempt: the last column counts them as solved, the one before leaves them out, and the "
    "truth is in between."
)
_SHARES = (
    "Shares are those of correct answers at the next attempt. Drawn questions whose rewards become equal fall into "
    "bucket 0 and are not drawn again: they have no next attempt until they are fresh, which biases the difference."
)
WEIGHTS = (
    "W is the product of a trajectory's token ratios, new policy over the one that wrote it; E[W²] is what the bounds "
    "A and B weigh squared gradients by, M what A' and B' put in its place, f(W) = W / (W + β). A larger E[W²] "
    "of the candidates not replayed suggests that choosing low entropy tightens the bound. Means of W and W² follow a "
    "few large weights: effective says what share of the trajectories they amount to. M is the largest weight of a "
    "row, so it grows with the number of trajectories. Intervals of means are of 95%, Student's, and take trajectories "
    "as independent."
)
_WEIGHT_MEANS = {"Token ratio": "token_ratio", "E[W]": "mean", "E[f(W)]": "shaped_mean", "E[W²]": "square_mean"}


def show(effects: Sequence[DrawEffect], *, has_changes: bool) -> None:
    """Show the differences as points with intervals, and every number behind them.

    `has_changes` says whether buckets are of correct rollouts, so that values are changes, not shares.
    """
    if not effects:
        notice.show_empty(
            "balance", "Nothing to compare yet", "The comparison begins with the first replayed question."
        )
        return
    figures.show_card(
        "Drawn against undrawn", "percentage points of correctness at the next attempt, with 95% intervals",
        _chart(effects), "draw-effects", "Points with intervals: difference of drawn and undrawn questions by group",
    )  # fmt: skip
    number = st.column_config.NumberColumn
    waits = dict.fromkeys(("Steps, drawn", "Steps, undrawn"), number(format="%.1f"))
    value = "Change in points" if has_changes else "% correct"
    shares = dict.fromkeys((f"{value}, drawn", f"{value}, undrawn"), number(format="%+.1f" if has_changes else "%.1f"))
    data_table.show_card(
        "In numbers", table(effects, value), "drawn-against-undrawn",
        "Drawn and undrawn questions by group, their changes, and the difference with its interval",
        {"Questions": st.column_config.TextColumn(width=156), **waits, **shares},
        EXPLANATION.format(values=_CHANGES if has_changes else _SHARES),
    )  # fmt: skip


def table(effects: Sequence[DrawEffect], value: str) -> pd.DataFrame:
    """Return one row per group; `value` names what is compared, with its unit."""
    return pd.DataFrame(
        {
            "Questions": [row.group for row in effects],
            "Drawn": [row.num_drawn for row in effects],
            "Undrawn": [row.num_undrawn for row in effects],
            "Retired": [row.num_retired for row in effects],
            f"{value}, drawn": [100 * row.change_drawn for row in effects],
            f"{value}, undrawn": [100 * row.change_undrawn for row in effects],
            "Steps, drawn": [row.wait_drawn for row in effects],
            "Steps, undrawn": [row.wait_undrawn for row in effects],
            "Difference": [_text(row.difference) for row in effects],
            "With retired": [_text(row.difference_with_retired) for row in effects],
        }
    )


def _chart(effects: Sequence[DrawEffect]) -> go.Figure:
    colours = theme.palette()
    figure = figures.new_figure(
        70 + 34 * len(effects), "points, drawn minus undrawn", x={"showgrid": True}, hovermode="closest",
        y={"autorange": "reversed", "type": "category"}, showlegend=True, scattermode="group",
    )  # fmt: skip
    groups = [row.group for row in effects]
    for name, differences, colour in (
        ("next attempts only", [row.difference for row in effects], colours.replay),
        ("retired counted as solved", [row.difference_with_retired for row in effects], colours.retired),
    ):
        errors = np.array([100 * Z_95 * item.standard_error for item in differences], dtype=np.float32)
        figure.add_trace(
            go.Scatter(
                x=np.array([100 * item.value for item in differences], dtype=np.float32), y=groups, name=name,
                mode="markers", marker={"color": colour, "size": 8}, hovertemplate="%{text}",
                text=[f"{100 * item.value:+z.2f}" for item in differences],
                error_x={"type": "data", "array": errors, "color": colour}, orientation="h", offsetgroup=name,
            )
        )  # fmt: skip
    figure.add_vline(0, line={"color": colours.muted, "width": 1})
    return figure


def _text(difference: Difference) -> str:
    if math.isnan(difference.value):
        return NONE_SHOWN
    half = Z_95 * difference.standard_error
    return f"{100 * difference.value:+z.1f}" + ("" if not half > 0 else f" ± {100 * half:.1f}")


def show_weights(weights: TrajectoryWeights) -> None:
    """Show one row for each group."""
    lines = weights.lines
    if not lines:
        notice.show_empty("scale", "No weights yet", "They begin with the first candidate that is scored.")
        return
    weights_of: dict[str, list[float | None]] = {}
    for name, field in _WEIGHT_MEANS.items():
        weights_of[name] = [getattr(line, field) for line in lines]
        weights_of[f"{name} ± 95%"] = [known(line.half_intervals[field]) for line in lines]
    weights_of["M"] = [line.largest for line in lines]
    frame = pd.DataFrame(
        {
            "Trajectories": [line.group for line in lines],
            "Number": [line.num_trajectories for line in lines],
            **weights_of,
            "Effective": [100 * line.effective_share for line in lines],
        }
    )
    number = st.column_config.NumberColumn
    part = "" if weights.is_whole else f" Of the newest {weights.num_candidates:,} candidates."
    data_table.show_card(
        "Weights by age and entropy", frame, "trajectory-weights",
        "Mean, shaped mean, mean square and largest weight of trajectories by age and entropy",
        dict.fromkeys(weights_of, number()) | {"Effective": number(format="%.1f%%")}, WEIGHTS + part,
    )  # fmt: skip
