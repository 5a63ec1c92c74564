"""Runs, their attempts, checkpoints, metrics and evaluations."""

from collections.abc import Sequence
from dataclasses import replace

from app.queries.answers import ask, ask_outside_pages, ask_pages
from db.queries import metrics, runs
from db.queries.run_filter import RunFilter
from db.queries.run_order import NEWEST_FIRST, RunOrder
from db.rows.runs import MetricPoint, RunRow

RUNS_PAGE_SIZE = 100
MAX_CHART_POINTS = 300
TRAINING_RUNS = RunFilter(kinds=("train",))
"""The filter of choices that offer training runs only."""


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
