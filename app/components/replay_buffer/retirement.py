"""Retired questions: how many luck alone would retire, and how they fare when they are tried again."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.widgets import empty_state, exports
from app.formats import NONE_SHOWN, known
from db.rows.buffer import RetirementLine

EXPLANATION = (
    "A question of success rate p that is tried n times is solved in all with probability pⁿ, and then retired: "
    "**by luck** adds this up with p = k/K over the attempts at each bucket; n is K, or K - 1 beside a replay. k/K is "
    "of one group, so rates near 1 are overestimated, and luck with them. **Tried again** are later attempts at "
    "retired questions, which reviews (`review_interval`) and `retired: redraw` make."
)


def show(lines: Sequence[RetirementLine], run_id: str) -> None:
    """Show one row per bucket, and how to try retired questions again at a checkpoint."""
    if not any(line.num_retired for line in lines):
        empty_state.show("task_alt", "Nothing was retired yet", "A question retires when all K trajectories are right.")
        return
    frame = table(lines)
    rate = st.column_config.NumberColumn(format="%.1f")
    with st.container(border=True, gap="xxsmall", key="retirement-table"):
        exports.show_heading("Retired questions", frame, "retired-questions")
        st.dataframe(
            frame, hide_index=True, placeholder=NONE_SHOWN,
            column_config={name: rate for name in frame.columns if "%" in name or name == "By luck"},
            alt="Attempts, retired questions, those by luck alone, and later attempts, by bucket",
        )  # fmt: skip
        st.caption(EXPLANATION)
    st.caption("This asks a checkpoint every retired question again, and scores it under Benchmarks:")
    benchmark = "-b retired=retired.jsonl"
    st.code(
        f"exgrpo query retired {run_id} --lines > retired.jsonl\nexgrpo eval {run_id}@last {benchmark}", language=None
    )


def table(lines: Sequence[RetirementLine]) -> pd.DataFrame:
    """Return one row per bucket."""
    return pd.DataFrame(
        {
            "Bucket before": ["none" if line.bucket is None else str(line.bucket) for line in lines],
            "Attempts": [line.num_attempts for line in lines],
            "Retired": [line.num_retired for line in lines],
            "By luck": [known(line.num_expected) for line in lines],
            "Tried again": [line.num_retests for line in lines],
            "% correct again": [known(100 * line.retest_rate) for line in lines],
            "% all correct again": [known(100 * line.retest_solved) for line in lines],
        }
    )
