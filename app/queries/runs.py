"""Runs: lists, curves over any x axis, and reads that combine several queries."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import streamlit as st

from app.queries.answers import ask, ask_outside_pages, ask_pages
from app.queries.workbench import current_runs_root
from db.queries import judging, metrics, runs, selections
from db.queries.run_filter import NEWEST_FIRST, RunFilter, RunOrder
from db.rows.judging import JudgeRow
from db.rows.replays import WrongChoiceRow
from db.rows.runs import MetricPoint, RunRow

RUNS_PAGE_SIZE = 100
MAX_CHART_POINTS = 300
TRAINING_RUNS = RunFilter(kinds=("train",))
"""The filter of choices that offer training runs only."""
RECHECKED_STEPS = 20


def list_runs(where: RunFilter, num_pages: int = 1, order: RunOrder = NEWEST_FIRST) -> list[RunRow]:
    """Return the first pages of matching runs."""
    return ask_pages(
        lambda last: ask(runs.list_runs, where, order=order, after=last.run_id if last else None, limit=RUNS_PAGE_SIZE),
        RUNS_PAGE_SIZE,
        num_pages,
    )


def training_names(words: str = "", *, has_steps: bool = False) -> list[runs.RunName]:
    """Return the newest training runs that match the words; with `has_steps` only those with a finished step."""
    return ask(runs.list_run_names, replace(TRAINING_RUNS, words=words), has_steps=has_steps, limit=RUNS_PAGE_SIZE)


def names_for_keyboard(words: str, num_runs: int) -> list[runs.RunName]:
    """Return the newest runs that match the words, for a request of the browser's script; none without a database."""
    return ask_outside_pages(runs.list_run_names, RunFilter(words), limit=num_runs) or []


def metric_series(run_id: str, keys: Sequence[str]) -> dict[str, list[MetricPoint]]:
    """Return at most `MAX_CHART_POINTS` points of each metric."""
    return ask(metrics.metric_series, run_id, tuple(keys), MAX_CHART_POINTS)


class Axis(StrEnum):
    """The x axis of curves; a value is the word in the address."""

    STEPS = "steps"
    ROLLOUTS = "rollouts"
    TOKENS = "tokens"
    TIME = "time"
    CLOCK = "clock"


_KEYS = {Axis.ROLLOUTS: "rollouts/fresh_total", Axis.TOKENS: "tokens/generated_total"}


def axis_points(run_id: str, axis: Axis) -> list[MetricPoint] | None:
    """Return the axis's value after each step of a run; None for the axis of steps, empty if it was not recorded."""
    if axis is Axis.STEPS:
        return None
    if axis is Axis.TIME:
        return ask(metrics.training_seconds, run_id, MAX_CHART_POINTS)
    if axis is Axis.CLOCK:
        return ask(metrics.clock_seconds, run_id, MAX_CHART_POINTS)
    return metric_series(run_id, [_KEYS[axis]])[_KEYS[axis]]


def wrong_choices(run_id: str) -> list[WrongChoiceRow]:
    """Return the selections of a whole run that contradict their recorded scores.

    The first call for a long run checks a million candidates; later calls check the new steps only.
    """
    row = ask(runs.get_run, run_id)
    if row is None:
        return []
    known = _checked().get((current_runs_root(), run_id))
    if known is None or known.attempt != row.attempt or known.step > row.step:
        known = _Checked(row.attempt, 0, [])
    wrong = [*known.wrong, *ask(selections.wrong_choices, run_id, known.step)][: selections.MAX_WRONG]
    # The newest steps may not be complete in the database yet, so they are checked again.
    last = max(0, row.step - RECHECKED_STEPS)
    older = [choice for choice in wrong if choice.step < last]
    _checked()[current_runs_root(), run_id] = _Checked(row.attempt, last, older)
    return wrong


@dataclass(frozen=True, slots=True)
class _Checked:
    """The wrong choices before a step of an attempt."""

    attempt: int
    step: int
    wrong: list[WrongChoiceRow]


@st.cache_resource(show_spinner=False)
def _checked() -> dict[tuple[str, str], _Checked]:
    return {}


def list_judge_results(judge_run_id: str) -> list[JudgeRow]:
    """Return the counts of a judge's votes, none before the first vote."""
    return [row for row in ask(judging.list_judges) if row.judge_run_id == judge_run_id]
