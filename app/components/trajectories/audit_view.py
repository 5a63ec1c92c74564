"""The audit of a step's selections: each question with its checks, and the details of one."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from app import address, theme
from app.components.widgets import data_table, figures, grid, notice
from app.formats import NATS_HOVER, counted
from app.queries.answers import ask, kept
from app.settings import runs_root
from db.queries import buffer, selections
from db.rows.replays import SelectionRow, WrongChoiceRow, age
from db.rows.runs import CandidateRow
from jobs.actions.replay.facts import Fact, Outcome
from jobs.actions.replay.selection import ENTROPY, NLL, violations
from jobs.actions.replay.steps import audit_questions

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
    checks: tuple[Fact, ...]

    @property
    def violations(self) -> list[Fact]:
        """The checks that fail."""
        return violations(self.checks)


def audit(run_id: str, step: int) -> list[Audited]:
    """Check every selection of a step, tokens included; see `replay.selection.question_facts`."""
    candidates: dict[int, list[CandidateRow]] = {}
    for row in ask(buffer.candidates, run_id, step):
        candidates.setdefault(row.question_index, []).append(row)
    rows = ask(selections.list_selections, run_id, step)
    checks = kept(ask, audit_questions, runs_root(), run_id, step, until=rows)
    return [
        Audited(row, tuple(candidates.get(row.question_index, ())), tuple(checks[row.question_index])) for row in rows
    ]


def compared(check: Fact) -> str:
    """Return what a check compared, in words."""
    if check.outcome is Outcome.UNKNOWN:
        return check.note
    if check.recorded is None and check.computed is None:
        return f"{counted(check.num_compared, 'value')}, largest difference {check.difference:.3g}"
    values = [f"{value:z.6g}" if isinstance(value, float) else value for value in (check.recorded, check.computed)]
    where = "" if check.token is None else f", token {check.token}"
    return f"recorded {values[0]}, computed {values[1]}{where}"


def show_verdict(rows: Sequence[Audited], wrong: Sequence[WrongChoiceRow], step: int) -> None:
    """Show a red banner if anything is wrong in this step, else what was checked; the page has one of the whole run."""
    bad = [row for row in rows if row.violations]
    if bad:
        named = [
            f"question {row.selection.question_index}: "
            + ", ".join(f"{check.compared} ({compared(check)})" for check in row.violations)
            for row in bad[:MAX_NAMED]
        ]
        more = f"; and {len(bad) - MAX_NAMED} more" if len(bad) > MAX_NAMED else ""
        notice.show("error", f"{len(bad)} of {len(rows)} selections of this step are wrong", "; ".join(named) + more)
    else:
        num_checks = sum(check.outcome is Outcome.SAME for row in rows for check in row.checks)
        num_open = sum(check.outcome is Outcome.UNKNOWN for row in rows for check in row.checks)
        text = f":green[:material/verified:] **{num_checks:,} checks of step {step:,} pass**"
        text += "" if wrong else ", and no choice of the run contradicts its scores"
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
            "Entropy recomputed": [_recomputed(row, ENTROPY) for row in rows],
            "NLL recomputed": [_recomputed(row, NLL) for row in rows],
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
        signs = {Outcome.SAME: "passes", Outcome.DIFFERS: "VIOLATED", Outcome.UNKNOWN: "not checked"}
        checks = [(check.compared, signs[check.outcome], compared(check)) for check in row.checks]
        data_table.show(
            pd.DataFrame(checks, columns=["Check", "Result", "Compared"]), f"checks-question-{question}",
            "Every check and what it compared", key="checks",
        )  # fmt: skip


def chart(candidates: Sequence[CandidateRow]) -> go.Figure | None:
    """Return the candidates' entropies, the chosen one in the colour of the replay buffer."""
    if not candidates:
        return None
    colours = theme.palette()
    order = [f"{row.trajectory_id}" for row in candidates]
    axis = {"type": "category", "categoryorder": "array", "categoryarray": order}
    figure = figures.new_figure(190, "trajectory", x=axis, hovermode="closest", bargap=0.4, showlegend=True)
    for is_chosen, name, colour in ((True, "chosen", colours.replay), (False, "not chosen", colours.muted)):
        bars = [row for row in candidates if row.is_chosen is is_chosen]
        names, entropies = [f"{row.trajectory_id}" for row in bars], [row.entropy for row in bars]
        trace = figures.bars(names, entropies, name, colour, f"trajectory %{{x}}: %{{y:{NATS_HOVER}}}")
        figure.add_trace(trace.update(width=0.5 if len(candidates) > 3 else 0.2))
    return figure


def _result(row: Audited) -> str:
    num_bad = len(row.violations)
    num_made = sum(check.outcome is not Outcome.UNKNOWN for check in row.checks)
    return f"{num_bad} VIOLATED" if num_bad else f"{num_made} of {num_made} pass"


def _recomputed(row: Audited, name: str) -> float | None:
    return next((check.computed for check in row.checks if check.compared == name), None)


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
