"""What a step replayed where the method chooses no trajectory: stored groups as a whole, or trajectories of a file."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import theme
from app.components.widgets import exports
from app.formats import NONE_SHOWN, known
from db.rows.selections import ReplayedGroupRow, age

EXPLANATION = (
    "The method replays what it draws: it chooses among no candidates, so there is no choice to check. A stored group "
    "is as it was rolled out, so all its trajectories were generated in one step."
)


def show(rows: Sequence[ReplayedGroupRow], step: int) -> None:
    """Show one row per question that the step replayed."""
    frame = table(rows, step)
    exports.show_heading(f"Replayed in step {step:,}", frame, f"replayed-step-{step}")
    st.dataframe(
        frame, hide_index=True, placeholder=NONE_SHOWN, row_height=theme.ROW_HEIGHT, key="replayed-groups",
        height=theme.table_height(len(frame), 16),
        column_config={
            "Mean tokens": st.column_config.NumberColumn(format="%.1f"),
            "Entropy": st.column_config.NumberColumn(format="%.4f", help="Under the policy that replays, nats"),
            "Mean ratio": st.column_config.NumberColumn(format="%.3f"),
            "|Advantage|": st.column_config.NumberColumn(format="%.3f", help="0 of a group without a gradient"),
        },
        alt="What the step replayed of each question",
    )  # fmt: skip
    st.caption(EXPLANATION)


def table(rows: Sequence[ReplayedGroupRow], step: int) -> pd.DataFrame:
    """Return one row per question."""
    return pd.DataFrame(
        {
            "Question": [row.question_index for row in rows],
            "Trajectories": [row.num_trajectories for row in rows],
            "Correct": [row.num_correct for row in rows],
            "Generated in step": [_born(row) for row in rows],
            "Age": [None if row.is_external else age(step, row.last_born_step) for row in rows],
            "Mean tokens": [known(row.num_tokens) for row in rows],
            "Entropy": [known(row.mean_entropy) for row in rows],
            "Mean ratio": [known(row.mean_ratio) for row in rows],
            "|Advantage|": [known(row.advantage_size) for row in rows],
        }
    )


def _born(row: ReplayedGroupRow) -> str:
    if row.is_external:
        return "from a file"
    if row.first_born_step == row.last_born_step:
        return f"{row.first_born_step:,}"
    return f"{row.first_born_step:,} to {row.last_born_step:,}"
