"""The scores that an evaluation has so far."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.widgets import empty_state, exports
from app.formats import escape_control_characters
from db.rows.score_intervals import half_interval_95
from db.rows.scores import BenchmarkScoreRow


def show(rows: Sequence[BenchmarkScoreRow]) -> None:
    """Show one row per benchmark and scheme of scoring."""
    if not rows:
        empty_state.show(
            "leaderboard", "No score yet", "A benchmark's score appears when its last question is answered."
        )
        return
    frame = table(rows)
    exports.show_heading("Scores", frame, "scores")
    percent = st.column_config.NumberColumn(format="%.1f%%")
    st.dataframe(
        frame,
        hide_index=True,
        column_config={
            "Score": percent,
            "± 95%": st.column_config.NumberColumn(format="%.1f%%", help="Half interval, clustered over questions"),
            "Truncated": st.column_config.NumberColumn(format="%.1f%%", help="Answers cut at the length limit"),
            "Mean tokens": st.column_config.NumberColumn(format="%.0f"),
        },
        alt="Scores of the evaluation by benchmark and scheme",
    )
    _show_rewards(rows)


def _show_rewards(rows: Sequence[BenchmarkScoreRow]) -> None:
    frame = reward_table(rows)
    if frame.empty:
        return
    exports.show_heading("Rewards", frame, "rewards")
    st.dataframe(
        frame, hide_index=True, column_config={"Mean": st.column_config.NumberColumn(format="%.4f")},
        alt="Mean of each part of the training reward by benchmark",
    )  # fmt: skip
    st.caption(
        "Means over all answers, before weights. A part that asks for right answers follows the score as rewarded."
    )


def reward_table(rows: Sequence[BenchmarkScoreRow]) -> pd.DataFrame:
    """Return one row per benchmark and part of a training reward; the schemes of a benchmark have the same ones."""
    means = {(row.title, part): mean for row in rows for part, mean in row.reward_means.items()}
    return pd.DataFrame(
        [
            {"Benchmark": escape_control_characters(title), "Part": escape_control_characters(part), "Mean": mean}
            for (title, part), mean in means.items()
        ]
    )


def table(rows: Sequence[BenchmarkScoreRow]) -> pd.DataFrame:
    """Return one row per benchmark and scheme of scoring, scores in percent."""
    return pd.DataFrame(
        {
            "Benchmark": [escape_control_characters(row.title) for row in rows],
            "Scored": [row.scheme for row in rows],
            "Measure": [row.metric for row in rows],
            "Score": [100 * row.score for row in rows],
            "± 95%": [100 * half_interval_95(row.standard_error) for row in rows],
            "Questions": [row.num_questions for row in rows],
            "Mean tokens": [row.mean_tokens for row in rows],
            "Truncated": [100 * row.truncated_share for row in rows],
        }
    )
