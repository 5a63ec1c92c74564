"""What a step would have replayed with another mu, sigma, rho or estimator."""

from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app import theme
from app.components.replay_buffer import what_if_steps
from app.components.widgets import data_table, figures, notice
from app.formats import counted, number
from app.queries.answers import ask
from app.queries.runs import draws_of
from db.queries import buffer
from db.rows.runs import BucketRow
from db.rows.spec_fields import bucket_meaning
from exgrpo_core.config import GAUSSIAN
from exgrpo_core.methods.protocols import TrajectorySelector
from jobs.actions.replay import other_settings
from jobs.actions.replay.other_settings import (
    Change,
    Choice,
    QuestionDraw,
    RecordedDraw,
    Settings,
    other_choices,
    recorded_draw,
)


def show(run_id: str, step: int, buckets: list[BucketRow], algorithm: dict[str, Any]) -> None:
    """Show the controls and what changes, computed from recorded scores."""
    if algorithm["question_selection"] != GAUSSIAN:
        sentence = (
            f"This run draws questions by the rule {algorithm['question_selection']}, which does not use mu and sigma."
        )
        notice.show_empty("science_off", "No what-if for this run", sentence)
        return
    settings = _settings(algorithm)
    if not _show_all_steps(run_id, settings, algorithm):
        notice.show_empty(
            "science_off", "Nothing was replayed yet", "The what-if begins with the first step that replays."
        )
        return
    rows = ask(buffer.candidates, run_id, step)
    if not rows:
        notice.show_empty(
            "science_off", "Nothing was replayed in this step", "Choose a step that drew from the buffer."
        )
        return
    st.markdown(f"**Step {step:,}**")
    before = ask(buffer.state_at, run_id, step - 1).buckets
    recorded = recorded_draw(before, buckets, rows, algorithm["batch_size"], algorithm["rollouts_per_question"])
    draw = other_settings.redraw(recorded, settings, seed=0)
    stored = ask(buffer.stored_candidates, run_id, step, tuple(draw.added)) if draw.added else []
    outcomes = other_choices(rows, stored, draw, settings.estimator)
    _show_counts(draw, outcomes)
    left, right = st.columns([2, 3], gap="small")
    with left:
        figures.show_card(
            "Bucket probabilities", "recorded and what if", chart(recorded, draw, bucket_meaning(algorithm)),
            "what-if-probabilities",
            "Probability of each bucket as recorded and under the settings",
        )  # fmt: skip
    with right:
        nats = st.column_config.NumberColumn(format="%.4f")
        data_table.show(
            _table(outcomes, step), f"what-if-step-{step}", "Questions with the recorded and the other choice",
            {"Entropy": nats, "NLL": nats}, most=8, key="what-if",
        )  # fmt: skip
    st.caption(
        "Nothing is changed. Questions: one possible draw that keeps as many recorded ones as the new probabilities "
        "allow. Questions that were not drawn have their newest scores from before this step, with the age in steps "
        "next to them."
    )


def _show_all_steps(run_id: str, settings: Settings, algorithm: dict[str, Any]) -> bool:
    """Show the share of draws that change over all steps; return False where no step drew any."""
    steps, shares = what_if_steps.changed_shares(
        draws_of(run_id), settings, algorithm["batch_size"], algorithm["rollouts_per_question"]
    )
    if not len(steps):
        return False
    title = f"Draws that change: {shares.mean():.1%} over {counted(len(steps), 'step')}"
    figures.show_card(
        title, "expected share of a step's draws",
        what_if_steps.chart(steps, shares), "what-if-steps",
        "Expected share of each step's draws that the settings would change",
    )  # fmt: skip
    return True


def chart(recorded: RecordedDraw, draw: QuestionDraw, meaning: str) -> go.Figure:
    """Return recorded and new probabilities by bucket."""
    colours = theme.palette()
    figure = figures.new_figure(235, meaning, y={"tickformat": ".0%"}, hovermode="closest", bargap=0.2)
    buckets = sorted(draw.probabilities)
    for name, values, colour in (
        ("recorded", recorded.probabilities, colours.muted),
        ("what if", draw.probabilities, colours.replay),
    ):
        shares = [values.get(bucket, 0.0) for bucket in buckets]
        figure.add_trace(figures.bars(buckets, shares, name, colour, "bucket %{x}: %{y:.1%}"))
    return figure


def _table(outcomes: list[Choice], step: int) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Question": [row.question_index for row in outcomes],
            "Bucket": [row.bucket for row in outcomes],
            "Change": [row.change for row in outcomes],
            "Replayed": [row.recorded_id for row in outcomes],
            "Would replay": [row.choice.trajectory_id if row.choice else None for row in outcomes],
            "Entropy": [row.choice.entropy if row.choice else None for row in outcomes],
            "NLL": [row.choice.nll if row.choice else None for row in outcomes],
            "Age of scores": [step - row.choice.scored_step if row.choice else None for row in outcomes],
        }
    )


def _settings(algorithm: dict[str, Any]) -> Settings:
    rule = algorithm["trajectory_selection"]
    label = rule.replace("_", " ")
    known = other_settings.estimators(algorithm)
    estimators: dict[str, TrajectorySelector | None] = {} if rule in known else {f"as recorded ({label})": None}
    estimators |= {name.replace("_", " "): selector for name, selector in known.items()}
    names = list(estimators)
    columns = st.columns(4, gap="medium")
    fields = (
        ("mu", "bucket_center", 0.0, 1.0),
        ("sigma", "bucket_spread", 0.001, 4.0),
        ("rho", "experience_ratio", 0.0, 0.99),
    )
    values = [
        column.number_input(
            f"{name}, run: {number(algorithm[field])}", low, max(high, float(algorithm[field])),
            max(low, float(algorithm[field])), 0.05, format="%.3f", key=name, bind="query-params",
        )
        for column, (name, field, low, high) in zip(columns, fields, strict=False)
    ]  # fmt: skip
    estimator = columns[3].selectbox(
        f"Estimator, run: {label}", names, index=names.index(label) if label in names else 0, key="estimator",
        bind="query-params",
        help="Recorded scores do not say what this run's rule would choose for other questions."
        if rule not in known else None,
    )  # fmt: skip
    return Settings(values[0], values[1], values[2], estimators[estimator])


def _show_counts(draw: QuestionDraw, outcomes: list[Choice]) -> None:
    num_others = sum(row.change is Change.OTHER_TRAJECTORY for row in outcomes)
    if not (num_others or draw.added or draw.dropped):
        st.markdown(f"**Nothing changes:** the same {counted(len(draw.kept), 'question')} and trajectories.")
        return
    st.markdown(
        f"**{num_others:,}** of {len(draw.kept):,} kept questions replay another trajectory, "
        f"**{len(draw.added):,}** questions are added, **{len(draw.dropped):,}** are dropped."
    )
