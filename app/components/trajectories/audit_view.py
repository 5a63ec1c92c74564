"""The audit of a step's selections: each question with its checks, and the details of one."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app import address, theme
from app.components.trajectories import selection_audit
from app.components.trajectories.selection_audit import Check
from app.components.widgets import data_table, figures, grid, notice
from app.queries.answers import ask
from app.queries.runs import current_runs_root
from app.settings import runs_root
from db.queries import buffer, selections
from db.rows.replays import SelectionRow, WrongChoiceRow, age
from db.rows.runs import CandidateRow
from exgrpo_core.methods.protocols import TrajectorySelector
from jobs.actions.token_texts import token_data

MAX_WRONG_NAMED = 5
MAX_NAMED = 5


def show_banner(wrong: Sequence[WrongChoiceRow]) -> None:
    """Show the banner where any selection contradicts its scores, nothing otherwise."""
    if wrong:
        named = ", ".join(f"step {row.step} question {row.question_index}" for row in wrong[:MAX_WRONG_NAMED])
        least = "At least " if len(wrong) >= selections.MAX_WRONG else ""
        notice.show(
            "error",
            "This run has choices that contradict their scores",
            f"{least}{len(wrong)} selections, first {named}. Later results of this run rest on them.",
        )


@dataclass(frozen=True, slots=True)
class Audited:
    """One selection with its candidates and every check made on it."""

    selection: SelectionRow
    candidates: tuple[CandidateRow, ...]
    checks: tuple[Check, ...]

    @property
    def violations(self) -> list[Check]:
        """The checks that fail."""
        return selection_audit.violations(self.checks)


def audit(
    run_id: str, step: int, estimator: TrajectorySelector | None, num_wanted: int, has_new_log_probs: bool = False
) -> list[Audited]:
    """Check every selection of a step, tokens included; see `selection_audit.check_tokens`."""
    candidates: dict[int, list[CandidateRow]] = {}
    for row in ask(buffer.candidates, run_id, step):
        candidates.setdefault(row.question_index, []).append(row)
    audited = []
    for selection in ask(selections.list_selections, run_id, step):
        scored = candidates.get(selection.question_index, [])
        chosen = next((row for row in scored if row.trajectory_id == selection.chosen_trajectory_id), None)
        checks = selection_audit.check_choice(selection, scored, estimator, num_wanted)
        question = repr((current_runs_root(), run_id, step, selection, chosen))
        checks += _token_checks(question, run_id, step, selection, chosen, has_new_log_probs)
        audited.append(Audited(selection, tuple(scored), tuple(checks)))
    return audited


def show_verdict(rows: Sequence[Audited], wrong: Sequence[WrongChoiceRow], step: int) -> None:
    """Show a red banner if anything is wrong in this step or in the run, else what was checked."""
    bad = [row for row in rows if row.violations]
    if bad:
        named = [
            f"question {row.selection.question_index}: "
            + ", ".join(f"{check.name} ({check.message})" for check in row.violations)
            for row in bad[:MAX_NAMED]
        ]
        more = f"; and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
        notice.show("error", f"{len(bad)} of {len(rows)} selections of this step are wrong", "; ".join(named) + more)
    show_banner(wrong)
    if not bad and not wrong:
        num_checks = sum(check.is_good is True for row in rows for check in row.checks)
        num_open = sum(check.is_good is None for row in rows for check in row.checks)
        text = f":green[:material/verified:] **{num_checks:,} checks of step {step:,} pass**, and no choice of the run "
        text += "contradicts its scores"
        st.markdown(text + (f"; not made, since tokens were not stored: {num_open:,}." if num_open else "."))


_ROWS_IN_VIEW = 12


def show_table(rows: Sequence[Audited], step: int, opened: Audited | None) -> None:
    """Show one row per selection; a click puts its question into the address."""
    columns = {
        "Entropy": st.column_config.NumberColumn(format="%.4f", help="As recorded, nats per token"),
        "Entropy recomputed": st.column_config.NumberColumn(format="%.4f", help="From the tokens, nats per token"),
        "NLL recomputed": st.column_config.NumberColumn(format="%.4f", help="From the tokens, nats per token"),
        "Mean ratio": st.column_config.NumberColumn(format="%.3f"),
    }
    frame = _table(rows)
    clicks = grid.Clicks(
        [_id(row) for row in rows], lambda question: address.put({"question": question}),
        None if opened is None else _id(opened),
    )  # fmt: skip
    data_table.export_above(frame, f"selections-step-{step}", "selections")
    grid.draw(
        frame, f"audit-{step}",
        "Selections of the step with recorded and recomputed scores and the result of the checks",
        columns, _ROWS_IN_VIEW, clicks,
    )  # fmt: skip


def _id(row: Audited) -> str:
    return str(row.selection.question_index)


def _table(rows: Sequence[Audited]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Question": [row.selection.question_index for row in rows],
            "Checks": [_result(row) for row in rows],
            "Bucket": [row.selection.bucket for row in rows],
            "Candidates": [len(row.candidates) for row in rows],
            "Chosen": [row.selection.chosen_trajectory_id for row in rows],
            "Age": [_age(row) for row in rows],
            "Entropy": [row.selection.mean_entropy for row in rows],
            "Entropy recomputed": [_recomputed(row, selection_audit.ENTROPY) for row in rows],
            "NLL recomputed": [_recomputed(row, selection_audit.NLL) for row in rows],
            "Mean ratio": [row.selection.mean_ratio for row in rows],
            "Tokens": [row.selection.num_tokens for row in rows],
        }
    )


def show_one(row: Audited) -> None:
    """Show one selection: its candidates and every check."""
    question = row.selection.question_index
    st.subheader(f"Question {question:,}", anchor=False)
    left, right = st.columns(2, gap="small")
    with left:
        figures.show_card(
            "Candidates", "entropy in nats per token, oldest first", chart(row.candidates), "audit-candidates",
            "Bars: entropy of each candidate, the chosen one marked",
        )  # fmt: skip
        columns = dict.fromkeys(("Entropy", "NLL", "Score"), st.column_config.NumberColumn(format="%.4f"))
        data_table.show(
            _candidates(row.candidates), f"candidates-question-{question}", "Candidates", columns, key="candidates"
        )
    with right:
        signs = {True: "passes", False: "VIOLATED", None: "not checked"}
        checks = [(check.name, signs[check.is_good], check.message) for check in row.checks]
        data_table.show(
            pd.DataFrame(checks, columns=["Check", "Result", "Compared"]), f"checks-question-{question}",
            "Every check and what it compared", key="checks",
        )  # fmt: skip


def chart(candidates: Sequence[CandidateRow]) -> go.Figure | None:
    """Return the candidates' entropies, the chosen one in the colour of the replay buffer."""
    if not candidates:
        return None
    colours = theme.palette()
    figure = figures.new_figure(height=190)
    for is_chosen, name, colour in ((True, "chosen", colours.replay), (False, "not chosen", colours.muted)):
        bars = [row for row in candidates if row.is_chosen is is_chosen]
        names, entropies = [f"{row.trajectory_id}" for row in bars], [row.entropy for row in bars]
        trace = figures.bars(names, entropies, name, colour, "trajectory %{x}: %{y:.4~g}")
        figure.add_trace(trace.update(width=0.5 if len(candidates) > 3 else 0.2))
    order = [f"{row.trajectory_id}" for row in candidates]
    figure.update_layout(hovermode="closest", bargap=0.4, showlegend=True)
    figure.update_xaxes(type="category", categoryorder="array", categoryarray=order, title={"text": "trajectory"})
    return figure


@st.cache_data(max_entries=4000, show_spinner=False)
def _token_checks(
    question: str,  # noqa: ARG001 - the cache's key, which leaves out what begins with an underscore
    _run_id: str,
    _step: int,
    _selection: SelectionRow,
    _chosen: CandidateRow | None,
    _has_new_log_probs: bool,
) -> list[Check]:
    replayed = _tokens(_run_id, _selection.file, _selection.chosen_trajectory_id, replayed_in=_step)
    at_rollout = _tokens(_run_id, _selection.rollout_file, _selection.chosen_trajectory_id, replayed_in=None)
    return selection_audit.check_tokens(_selection, _chosen, replayed, at_rollout, _has_new_log_probs)


def _tokens(
    run_id: str, file: str | None, trajectory_id: int, replayed_in: int | None
) -> selection_audit.Tokens | None:
    if file is None:
        return None
    return token_data(runs_root(), run_id, file, trajectory_id, replayed_in=replayed_in, has_texts=False)


def _result(row: Audited) -> str:
    num_bad = len(row.violations)
    num_made = sum(check.is_good is not None for check in row.checks)
    return f"{num_bad} VIOLATED" if num_bad else f"{num_made} of {num_made} pass"


def _recomputed(row: Audited, name: str) -> float | None:
    return next((check.recomputed for check in row.checks if check.name == name), None)


def _age(row: Audited) -> int | None:
    chosen = next((row for row in row.candidates if row.is_chosen), None)
    return None if chosen is None else age(chosen.step, chosen.rollout_step)


def _candidates(rows: Sequence[CandidateRow]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Trajectory": [row.trajectory_id for row in rows],
            "Generated in step": [row.rollout_step for row in rows],
            "Tokens": [row.num_tokens for row in rows],
            "Entropy": [row.entropy for row in rows],
            "NLL": [row.nll for row in rows],
            "Score": [row.score for row in rows],
            "Chosen": ["chosen" if row.is_chosen else "" for row in rows],
        }
    )
