"""Run, Step: what a step chose for replay, checked against its records, and what replays changed."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
import streamlit as st

from app.components.trajectories import audit_view, replay_effects
from app.components.widgets import address_choice, data_table, notice
from app.formats import known
from app.queries.answers import ask
from app.queries.runs import wrong_choices
from db.queries import draw_effects, runs, selections
from db.rows.replays import ReplayedGroupRow, age
from db.rows.runs import RunRow
from db.rows.spec_fields import algorithm_settings, experience_ratio, has_continuous_rewards
from exgrpo_core.errors import InputError
from exgrpo_core.methods.loading import QUESTIONS, find_part

VIEWS = ["Checks of a step", "Drawn against undrawn", "Weights"]
GROUPS = (
    "The method replays what it draws: it chooses among no candidates, so there is no choice to check. A stored group "
    "is as it was rolled out, so all its trajectories were generated in one step."
)


def show_groups(rows: Sequence[ReplayedGroupRow], step: int) -> None:
    """Show one row per question that the step replayed."""
    number = st.column_config.NumberColumn
    data_table.show_card(
        f"Replayed in step {step:,}", group_table(rows, step), "replayed-groups",
        "What the step replayed of each question",
        {
            "Mean tokens": number(format="%.1f"),
            "Entropy": number(format="%.4f", help="Under the policy that replays, nats"),
            "Mean ratio": number(format="%.3f"),
            "|Advantage|": number(format="%.3f", help="0 of a group without a gradient"),
        },
        GROUPS,
    )  # fmt: skip


def group_table(rows: Sequence[ReplayedGroupRow], step: int) -> pd.DataFrame:
    """Return one row per question."""
    return pd.DataFrame(
        {
            "Question": [row.question_index for row in rows],
            "Trajectories": [row.num_trajectories for row in rows],
            "Correct": [row.num_correct for row in rows],
            "Generated in step": [_born(row) for row in rows],
            "Age": [None if row.is_external else age(step, row.last_rollout_step) for row in rows],
            "Mean tokens": [known(row.num_tokens) for row in rows],
            "Entropy": [known(row.mean_entropy) for row in rows],
            "Mean ratio": [known(row.mean_ratio) for row in rows],
            "|Advantage|": [known(row.advantage_size) for row in rows],
        }
    )


def _born(row: ReplayedGroupRow) -> str:
    if row.is_external:
        return "from a file"
    if row.first_rollout_step == row.last_rollout_step:
        return f"{row.first_rollout_step:,}"
    return f"{row.first_rollout_step:,} to {row.last_rollout_step:,}"


def _step(steps: list[int]) -> int:
    """Show the choice of a step that replayed, and return it; the newest by default."""
    if len(steps) == 1:
        st.caption(f"Step {steps[0]:,}, the only one that replayed")
        return steps[0]
    wanted = st.query_params.get("step", "")
    chosen = int(wanted) if wanted in map(str, steps) else steps[-1]
    st.select_slider("Step", steps, **address_choice.kept("step", chosen, "audited-step"))
    return chosen


def _checks(row: RunRow, _algorithm: dict[str, Any]) -> None:
    steps = ask(selections.steps_with_selections, row.run_id)
    if not steps:
        _replays(row)
        return
    step = _step(steps)
    with st.spinner("Checking tokens", show_time=False):
        rows = audit_view.audit(row.run_id, step)
    audit_view.show_verdict(rows, wrong_choices(row.run_id), step)
    wanted = st.query_params.get("question")
    opened = next((row for row in rows if str(row.selection.question_index) == wanted), None)
    audit_view.show_table(rows, step, opened)
    if opened is not None:
        audit_view.show_one(opened)
    elif wanted:
        text = "This step did not replay the question in the address."
        notice.show_empty("search_off", "Not drawn in this step", text)


def _replays(row: RunRow) -> None:
    """Show what was replayed without a choice among candidates."""
    steps = ask(selections.steps_with_replays, row.run_id)
    if not steps:
        notice.show_empty(
            "fact_check", "Nothing was replayed yet", "The audit begins with the first step that replays."
        )
        return
    step = _step(steps)
    show_groups(ask(selections.list_replayed_groups, row.run_id, step), step)


def _is_an_experiment(question_selection: str) -> bool:
    try:
        return bool(find_part(QUESTIONS, question_selection).is_even_within_buckets)
    except InputError:
        return False


def _effects(row: RunRow, algorithm: dict[str, Any]) -> None:
    if not _is_an_experiment(algorithm["question_selection"]):
        rule = algorithm["question_selection"]
        text = f"`{rule}` does not draw at random within a bucket, so drawn and undrawn questions cannot be compared."
        notice.show_empty("balance", "No experiment", text)
        return
    with st.spinner("Comparing questions", show_time=False):
        num_rollouts = None if has_continuous_rewards(algorithm) else algorithm["rollouts_per_question"]
        effects = ask(draw_effects.draw_effects, row.run_id, num_rollouts)
    replay_effects.show(effects, has_changes=num_rollouts is not None)


def _weights(row: RunRow, algorithm: dict[str, Any]) -> None:
    replay_effects.show_weights(ask(selections.trajectory_weights, row.run_id, algorithm["shaping_beta"]))


def show(row: RunRow) -> None:
    """Show the audit of the run's selections, or why it has none."""
    spec = ask(runs.run_spec, row.run_id)
    if not row.has_settings:
        notice.show_empty(
            "fact_check", "No audit", "The rule by which this run chose is in its settings, which cannot be read."
        )
    elif not experience_ratio(spec):
        notice.show_no_replay(row)
    else:
        st.caption("A step's draw of questions and choice of trajectories, computed again from what was recorded.")
        name, tab = address_choice.tabs(VIEWS, address_choice.PART)
        with tab:
            dict(zip(VIEWS, (_checks, _effects, _weights), strict=True))[name](row, algorithm_settings(spec))
