"""Importance weights of whole trajectories, replayed or not, by age and entropy."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import theme
from app.components.widgets import empty_state, exports
from app.formats import NONE_SHOWN
from db.rows.selections import WeightLine

EXPLANATION = (
    "W is the product of a trajectory's token ratios, new policy over the one that wrote it; E[W²] is what the bounds "
    "A and B weigh squared gradients by, M what A' and B' put in its place, f(W) = W / (W + β). A larger E[W²] "
    "of the candidates not replayed suggests that choosing low entropy tightens the bound. Means of W and W² follow a "
    "few large weights: effective says what share of the trajectories they amount to. M is the largest weight of a "
    "row, so it grows with the number of trajectories."
)


def show(lines: Sequence[WeightLine]) -> None:
    """Show one row for each group."""
    if not lines:
        empty_state.show("scale", "No weights yet", "They begin with the first candidate that is scored.")
        return
    frame = table(lines)
    with st.container(border=True, gap="xxsmall", key="weight-table"):
        exports.show_heading("Weights by age and entropy", frame, "trajectory-weights")
        st.dataframe(
            frame, hide_index=True, placeholder=NONE_SHOWN, row_height=theme.ROW_HEIGHT,
            height=theme.table_height(len(frame)),
            column_config={
                name: st.column_config.NumberColumn(format="%.1f%%" if name == "Effective" else "%.4g")
                for name in frame.columns[2:]
            },
            alt="Mean, shaped mean, mean square and largest weight of trajectories by age and entropy",
        )  # fmt: skip
        st.caption(EXPLANATION)


def table(lines: Sequence[WeightLine]) -> pd.DataFrame:
    """Return one row per group."""
    names = {
        "Trajectories": "group",
        "Number": "num_trajectories",
        "Token ratio": "token_ratio",
        "E[W]": "mean",
        "E[f(W)]": "shaped_mean",
        "E[W²]": "square_mean",
        "M": "largest",
        "Effective": "effective_share",
    }
    frame = pd.DataFrame([{name: getattr(line, field) for name, field in names.items()} for line in lines])
    return frame.assign(Effective=100 * frame["Effective"])
