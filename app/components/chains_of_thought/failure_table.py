"""Failures that may be worth replaying: answers against reasoning with entropy, and near misses."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.chains_of_thought.thought_statistics import ReadAnswer
from app.components.widgets import exports
from app.formats import NONE_SHOWN, escape_control_characters, known, share
from db.rows.failures import OutcomeCell

MAX_SHOWN = 50
_VERDICTS = {True: "valid", False: "not valid", None: "no verdict"}
_SHOWN_CHARACTERS = 200


def show_cells(cells: Sequence[OutcomeCell]) -> None:
    """Show one row for each answer and verdict."""
    frame = cell_table(cells)
    entropy = st.column_config.NumberColumn(format="%.4f", help="Mean over trajectories, nats per token")
    with st.container(border=True, gap="xxsmall", key="outcome-cells"):
        exports.show_heading("Answers against reasoning", frame, "answers-against-reasoning")
        st.dataframe(
            frame, hide_index=True, placeholder=NONE_SHOWN,
            column_config={
                "Trajectories": st.column_config.NumberColumn(format="localized"),
                "%": st.column_config.NumberColumn(format="%.1f"),
                "Entropy": entropy, "Deviation": entropy,
            },
            alt="Trajectories and their entropy by answer and verdict on the reasoning",
        )  # fmt: skip
        st.caption(
            "The oracles of the built-in tasks call reasoning valid only where the answer is right too: their failures "
            "are below, by the steps before the first fault. Deviations are between trajectories."
        )


def show_near_misses(read: Sequence[ReadAnswer]) -> None:
    """Show how far wrong answers were right, and the nearest misses."""
    if not read:
        return
    frame = near_miss_table(read[:MAX_SHOWN])
    with st.container(border=True, gap="xxsmall", key="near-misses"):
        exports.show_heading("Near misses", frame, "near-misses")
        st.markdown(near_miss_sentence(read))
        st.dataframe(
            frame, hide_index=True, placeholder=NONE_SHOWN,
            column_config={
                "Right steps": st.column_config.TextColumn(help="Before the first fault, of those that are needed"),
                "Entropy": st.column_config.NumberColumn(format="%.4f", help="Nats per token"),
            },
            alt="Wrong answers with the most right steps first",
        )  # fmt: skip


def cell_table(cells: Sequence[OutcomeCell]) -> pd.DataFrame:
    """Return one row per cell."""
    total = sum(cell.num_trajectories for cell in cells)
    return pd.DataFrame(
        {
            "Answer": ["right" if cell.is_correct else "wrong" for cell in cells],
            "Reasoning": [_VERDICTS[cell.is_valid] for cell in cells],
            "Trajectories": [cell.num_trajectories for cell in cells],
            "%": [100 * cell.num_trajectories / total for cell in cells],
            "Entropy": [known(cell.mean_entropy) for cell in cells],
            "Deviation": [known(cell.entropy_deviation) for cell in cells],
        }
    )


def near_miss_sentence(read: Sequence[ReadAnswer]) -> str:
    """Return how many wrong answers have all of the right steps that their question needs, or all but one."""
    num_whole = sum(item.num_missing == 0 for item in read)
    num_last = sum(item.num_missing == 1 and item.num_good_steps > 0 for item in read)
    return (
        f"Of the newest **{len(read):,}** wrong answers that the oracle reads, **{num_whole:,}** have as many right "
        f"steps before the first fault as their question needs, and **{num_last:,}** have one fewer, but at least one."
    )


def near_miss_table(read: Sequence[ReadAnswer]) -> pd.DataFrame:
    """Return one row per wrong answer."""
    answers = [item.answer for item in read]
    return pd.DataFrame(
        {
            "Right steps": [f"{item.num_good_steps} of {item.num_steps}" for item in read],
            "Entropy": [answer.mean_entropy for answer in answers],
            "Correct in its group": [share(answer.correctness_rate) for answer in answers],
            "Step": [answer.step for answer in answers],
            "Question": [answer.question_index for answer in answers],
            "Trajectory": [answer.trajectory_id for answer in answers],
            "Response": [escape_control_characters(answer.text[-_SHOWN_CHARACTERS:]) for answer in answers],
        }
    )
