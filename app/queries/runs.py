"""Runs, their attempts, checkpoints, metrics and evaluations."""

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from app.queries import last_answers
from app.queries.answers import ask
from app.queries.last_answers import NoAnswerError
from db.connections.session import Database
from db.queries import database_facts, metrics, run_names, runs
from db.queries.run_filter import RunFilter
from db.queries.run_names import RunName
from db.queries.run_order import NEWEST_FIRST, RunOrder
from db.rows.runs import AttemptRow, CheckpointRow, EvaluationRow, MetricPoint, RunRow

RUNS_PAGE_SIZE = 100
MAX_CHART_POINTS = 300
TRAINING_RUNS = RunFilter(kinds=("train",))
"""Runs to choose from where only training runs mean something."""


def list_runs(where: RunFilter, num_pages: int = 1, order: RunOrder = NEWEST_FIRST) -> list[RunRow]:
    """Return the first pages of the runs that fit."""
    found: list[RunRow] = []
    for _ in range(num_pages):
        page = ask(_list_page, where, order, found[-1].run_id if found else None)
        found += page
        if len(page) < RUNS_PAGE_SIZE:
            break
    return found


def count_runs(where: RunFilter) -> dict[str, int]:
    """Return how many of the runs that fit are in each state."""
    return ask(runs.count_runs, where)


def training_names(words: str = "", *, has_steps: bool = False) -> list[RunName]:
    """Return the newest training runs that hold the words; with `has_steps` only those that have done a step."""
    return ask(_newest_names, replace(TRAINING_RUNS, words=words), has_steps)


def reason_away() -> str:
    """Return why the database does not answer, nothing while it does."""
    with contextlib.suppress(NoAnswerError):
        ask(database_facts.has_runs)
    return last_answers.reason_away()


def get_run(run_id: str) -> RunRow | None:
    """Return one run, or None if there is none of this id."""
    return ask(runs.get_run, run_id)


def run_spec(run_id: str) -> dict[str, Any]:
    """Return the specification that a run was started with."""
    return ask(runs.run_spec, run_id)


def list_attempts(run_id: str) -> list[AttemptRow]:
    """Return a run's attempts, first to last."""
    return ask(runs.list_attempts, run_id)


def list_checkpoints(run_id: str) -> list[CheckpointRow]:
    """Return a run's whole checkpoints, oldest first."""
    return ask(runs.list_checkpoints, run_id)


def list_notes(run_id: str) -> list[tuple[datetime, str]]:
    """Return what users noted on a run, oldest first."""
    return ask(runs.list_notes, run_id)


def metric_series(run_id: str, keys: Sequence[str]) -> dict[str, list[MetricPoint]]:
    """Return at most `MAX_CHART_POINTS` points of each metric."""
    return ask(metrics.metric_series, run_id, tuple(keys), MAX_CHART_POINTS)


def last_metrics(run_id: str) -> dict[str, float]:
    """Return the newest value of every metric."""
    return ask(metrics.last_metrics, run_id)


def list_evaluations(run_id: str) -> list[EvaluationRow]:
    """Return a run's evaluations in order of steps."""
    return ask(metrics.list_evaluations, run_id)


def _newest_names(database: Database, where: RunFilter, has_steps: bool) -> list[RunName]:
    return run_names.list_run_names(database, where, has_steps=has_steps, limit=RUNS_PAGE_SIZE)


def _list_page(database: Database, where: RunFilter, order: RunOrder, after: str | None) -> list[RunRow]:
    return runs.list_runs(database, where, order=order, after=after, limit=RUNS_PAGE_SIZE)
