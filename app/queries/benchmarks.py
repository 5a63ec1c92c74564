"""Scores of benchmarks, live evaluations, and two scored models compared."""

from datetime import UTC, datetime, timedelta

import streamlit as st

from app import settings
from app.paper_and_studies import AVERAGES
from app.queries.answers import ask
from app.queries.runs import list_runs
from app.settings import AppSettings
from db.queries import benchmarks, score_comparison
from db.queries.run_filter import RunFilter
from db.rows.runs import BROKEN_STATES, LIVE_STATES, RunRow
from db.rows.scores import BenchmarkScoreRow, ComparisonRow, ScoredRuns

MAX_SCORES = 5000
MAX_UNFINISHED = 5
BROKEN_SHOWN_HOURS = 24
_KEPT_SECONDS = 600


def list_scores(scheme: str) -> list[BenchmarkScoreRow]:
    """Return the newest scores by a scheme."""
    return ask(benchmarks.list_scores, scheme=scheme, limit=MAX_SCORES)


def live_evaluations() -> list[RunRow]:
    """Return queued and running evaluations, newest first."""
    return _evaluations(LIVE_STATES)


def broken_evaluations() -> list[RunRow]:
    """Return the newest evaluations of the last day that ended without all of their scores."""
    since = datetime.now(UTC) - timedelta(hours=BROKEN_SHOWN_HOURS)
    recent = [row for row in _evaluations(BROKEN_STATES) if (row.ended_at or row.created_at) >= since]
    return recent[:MAX_UNFINISHED]


def compare_scores(first: ScoredRuns, second: ScoredRuns, scheme: str) -> list[ComparisonRow]:
    """Return the differences of two scored models, second minus first; scores do not change, so answers are kept."""
    return _compare(settings.current(), first, second, scheme)


@st.cache_data(ttl=_KEPT_SECONDS, show_spinner=False, max_entries=100)
def _compare(
    current: AppSettings,  # noqa: ARG001 - part of the cache key
    first: ScoredRuns,
    second: ScoredRuns,
    scheme: str,
) -> list[ComparisonRow]:
    return ask(score_comparison.compare_scores, first, second, scheme, tuple(AVERAGES.items()))


def _evaluations(states: tuple[str, ...]) -> list[RunRow]:
    return list_runs(RunFilter(statuses=states, kinds=("eval",)))
