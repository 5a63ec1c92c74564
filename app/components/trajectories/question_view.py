"""The results of one question over steps and runs."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.widgets import empty_state, exports, figures
from app.formats import escape_control_characters
from db.rows.display_names import distinct_names
from db.rows.trajectories import AttemptedRow


def show(rows: Sequence[AttemptedRow], run_id: str) -> None:
    """Show the share of correct rollouts by step, one line per run, and every attempt as a table."""
    if not rows:
        empty_state.show("history", "No attempts", "No step has tried this question yet.")
        return
    names = distinct_names({row.run_id: row.run_name for row in rows}.items())
    num_runs = len(names)
    figures.show_card(
        "Correct rollouts of this question",
        f"share of fresh rollouts, in {num_runs} run{'s' if num_runs > 1 else ''} that tried it",
        chart(rows, names, run_id),
        "question-course",
        "Share of correct fresh rollouts of one question over steps, one line per run",
    )
    frame = table(rows, names)
    st.dataframe(frame, hide_index=True, key="question-table", alt="Every step that tried the question")
    exports.show(frame, "attempts-at-question")


def chart(rows: Sequence[AttemptedRow], names: dict[str, str], run_id: str) -> go.Figure:
    """Return one line per run, this run first and thickest; diamonds are steps with a replayed trajectory."""
    colours = theme.palette()
    others = [colours.held_out, colours.retired, colours.warning, colours.replay, colours.muted]
    figure = figures.new_figure()
    ordered = sorted(names, key=lambda run_key: (run_key != run_id, run_key))
    for index, run_key in enumerate(ordered):
        points = [row for row in rows if row.run_id == run_key]
        colour = colours.fresh if run_key == run_id else others[(index - 1) % len(others)]
        figure.add_trace(
            go.Scatter(
                x=np.array([row.step for row in points], dtype=np.int32),
                y=np.array([row.num_correct / row.num_rollouts for row in points], dtype=np.float32),
                name=escape_control_characters(names[run_key]).replace("<", "&lt;"),
                mode="lines+markers",
                line={"color": colour, "width": 2 if run_key == run_id else 1.2},
                marker={
                    "color": colour,
                    "size": 8,
                    "symbol": ["diamond" if row.is_replayed else "circle" for row in points],
                },
                hovertemplate="%{y:.0%}",
            )
        )
    figure.update_layout(showlegend=True)
    figure.update_yaxes(tickformat=".0%", range=[-0.03, 1.03])
    return figure


def table(rows: Sequence[AttemptedRow], names: dict[str, str]) -> pd.DataFrame:
    """Return one row per attempt."""
    return pd.DataFrame(
        {
            "Run": [escape_control_characters(names[row.run_id]) for row in rows],
            "Model": [escape_control_characters(row.model) for row in rows],
            "Step": [row.step for row in rows],
            "Correct": [f"{row.num_correct} of {row.num_rollouts}" for row in rows],
            "Mean entropy": [round(row.mean_entropy, 4) for row in rows],
            "Mean tokens": [round(row.mean_tokens, 1) for row in rows],
            "With replay": ["yes" if row.is_replayed else "no" for row in rows],
        }
    )
