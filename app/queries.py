"""The only reader: wraps `db.queries`, opens the database once a process and shares answers for a second.

While the database is away, a session sees its last good answers (`app.last_answers`).
"""

import contextlib
import json
from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import streamlit as st

from app import last_answers, settings
from app.formats import as_utc
from app.last_answers import NoAnswerError
from app.settings import AppSettings
from db.buffer_rows import BufferedQuestionRow, BufferState, ScoredRow, StoredRow
from db.queries import buffer, buffer_history, lineage, metrics, runs, selections, trajectories, trajectory_list
from db.queries.run_filter import RunFilter, RunPageKey
from db.rows import (
    AttemptRow,
    BucketRow,
    CandidateRow,
    CheckpointRow,
    EvaluationRow,
    MetricPoint,
    RunRow,
    TrajectoryRow,
)
from db.selection_rows import SelectionRow, WrongChoiceRow
from db.session import AWAY_ERRORS, Database, open_database
from db.trajectory_rows import (
    AttemptedRow,
    GroupMemberRow,
    LineageRow,
    QuestionRow,
    SnippetRow,
    TrajectoryFacets,
)

__all__ = [
    "RUNS_PAGE_SIZE",
    "SUPERVISOR_AWAY_SECONDS",
    "TRAJECTORIES_PAGE_SIZE",
    "NoAnswerError",
    "RunFilter",
    "TrajectoryFacets",
    "attempts_at_question",
    "bucket_grid",
    "buckets_at",
    "buffer_births",
    "buffer_state",
    "buffered_questions",
    "candidates",
    "count_facets",
    "count_runs",
    "count_trajectories",
    "get_question",
    "get_run",
    "get_trajectory",
    "group_members",
    "last_metrics",
    "list_attempts",
    "list_checkpoints",
    "list_evaluations",
    "list_runs",
    "list_selections",
    "list_snippets",
    "log_tail",
    "metric_series",
    "questions_born",
    "questions_replayed",
    "reason_away",
    "replay_counts",
    "run_spec",
    "runs_root",
    "scores_by_bucket",
    "steps_with_selections",
    "stored_candidates",
    "supervisor_age_seconds",
    "trajectory_file",
    "trajectory_lineage",
    "wrong_choices",
]

ANSWER_SECONDS = 1.0
RUNS_PAGE_SIZE = 100
TRAJECTORIES_PAGE_SIZE = 50
SUPERVISOR_AWAY_SECONDS = 15.0
MAX_CHART_POINTS = 300
_LOG_BYTES = 128 * 1024

Answer = TypeVar("Answer")


def list_runs(where: RunFilter, num_pages: int = 1) -> list[RunRow]:
    """Return the first pages of the runs that fit, newest first."""
    found: list[RunRow] = []
    for _ in range(num_pages):
        before = (found[-1].created_at, found[-1].run_id) if found else None
        page = _ask(_list_page, where, before)
        found += page
        if len(page) < RUNS_PAGE_SIZE:
            break
    return found


def count_runs(where: RunFilter) -> dict[str, int]:
    """Return how many of the runs that fit are in each state."""
    return _ask(runs.count_runs, where)


def reason_away() -> str:
    """Ask the database for a sign of life and return why it is away, nothing while it answers."""
    with contextlib.suppress(NoAnswerError):
        count_runs(RunFilter())
    return last_answers.reason_away()


def get_run(run_id: str) -> RunRow | None:
    """Return one run, or None if there is none of this id."""
    return _ask(runs.get_run, run_id)


def run_spec(run_id: str) -> dict[str, object]:
    """Return the specification that a run was started with."""
    return _ask(runs.run_spec, run_id)


def list_attempts(run_id: str) -> list[AttemptRow]:
    """Return a run's attempts, first to last."""
    return _ask(runs.list_attempts, run_id)


def list_checkpoints(run_id: str) -> list[CheckpointRow]:
    """Return a run's whole checkpoints, oldest first."""
    return _ask(runs.list_checkpoints, run_id)


def metric_series(run_id: str, keys: Sequence[str]) -> dict[str, list[MetricPoint]]:
    """Return at most `MAX_CHART_POINTS` points of each metric."""
    return _ask(metrics.metric_series, run_id, tuple(keys), MAX_CHART_POINTS)


def last_metrics(run_id: str) -> dict[str, float]:
    """Return the newest value of every metric."""
    return _ask(metrics.last_metrics, run_id)


def list_evaluations(run_id: str) -> list[EvaluationRow]:
    """Return a run's evaluations in order of steps."""
    return _ask(metrics.list_evaluations, run_id)


def bucket_grid(run_id: str) -> list[BucketRow]:
    """Return every bucket of every step."""
    return _ask(buffer.bucket_grid, run_id)


def buffer_state(run_id: str, step: int) -> BufferState:
    """Return the buffer and the retired set after a step."""
    return _ask(buffer_history.state_at, run_id, step)


def buckets_at(run_id: str, step: int) -> list[BucketRow]:
    """Return the buckets as they stood when a step drew from them."""
    return _ask(buffer_history.buckets_at, run_id, step)


def buffer_births(run_id: str, step: int) -> dict[int, int]:
    """Return how many trajectories the buffer held after a step, by the step of their birth."""
    return _ask(buffer_history.births, run_id, step)


def replay_counts(run_id: str, step: int) -> dict[int, int]:
    """Return how many of the trajectories held after a step were replayed how often."""
    return _ask(buffer_history.replay_counts, run_id, step)


def questions_born(run_id: str, step: int, born_step: int) -> list[int]:
    """Return the questions with a trajectory of this birth in the buffer after a step."""
    return _ask(buffer_history.questions_born, run_id, step, born_step)


def questions_replayed(run_id: str, step: int, num_replays: int) -> list[int]:
    """Return the questions with a trajectory replayed exactly so often in the buffer after a step."""
    return _ask(buffer_history.questions_replayed, run_id, step, num_replays)


def scores_by_bucket(run_id: str, step_from: int, step_to: int) -> list[ScoredRow]:
    """Return the scores of candidates given in these steps."""
    return _ask(buffer_history.scores_by_bucket, run_id, step_from, step_to)


def buffered_questions(run_id: str, step: int, question_indices: Sequence[int]) -> list[BufferedQuestionRow]:
    """Return what the buffer held of some questions after a step."""
    return _ask(buffer_history.buffered_questions, run_id, step, tuple(question_indices))


def stored_candidates(run_id: str, step: int, question_indices: Sequence[int]) -> list[StoredRow]:
    """Return the candidates that some questions had before a step, with their newest scores."""
    return _ask(buffer_history.stored_candidates, run_id, step, tuple(question_indices))


def candidates(run_id: str, step: int) -> list[CandidateRow]:
    """Return every candidate of every selection of a step."""
    return _ask(buffer.candidates, run_id, step)


def steps_with_selections(run_id: str) -> list[int]:
    """Return the steps that drew from the buffer, in order."""
    return _ask(selections.steps_with_selections, run_id)


def list_selections(run_id: str, step: int) -> list[SelectionRow]:
    """Return what a step selected for replay, by question."""
    return _ask(selections.list_selections, run_id, step)


def wrong_choices(run_id: str) -> list[WrongChoiceRow]:
    """Return the selections of a whole run that contradict their own recorded scores."""
    return _ask(selections.wrong_choices, run_id)


def list_snippets(facets: TrajectoryFacets, num_pages: int = 1) -> list[SnippetRow]:
    """Return the first pages of the trajectories that fit, newest first."""
    found: list[SnippetRow] = []
    for _ in range(num_pages):
        page = _ask(_snippet_page, facets, found[-1].trajectory_key if found else None)
        found += page
        if len(page) < TRAJECTORIES_PAGE_SIZE:
            break
    return found


def count_trajectories(facets: TrajectoryFacets) -> int:
    """Return how many trajectories fit, exact up to 10,000."""
    return _ask(trajectory_list.count_trajectories, facets)


def count_facets(facets: TrajectoryFacets) -> trajectory_list.FacetCounts:
    """Return how many trajectories would fit with each value of each closed facet."""
    return _ask(trajectory_list.count_facets, facets)


def get_trajectory(run_id: str, trajectory_id: int) -> TrajectoryRow | None:
    """Return one fresh trajectory, or None if there is none of this id."""
    return _ask(trajectories.get_trajectory, run_id, trajectory_id)


def trajectory_file(run_id: str, trajectory_id: int) -> str | None:
    """Return the file, relative to the run's folder, that holds a fresh trajectory's tokens."""
    return _ask(trajectories.find_trajectory_file, run_id, trajectory_id)


def trajectory_lineage(row: TrajectoryRow) -> list[LineageRow]:
    """Return what happened to a trajectory since it was born."""
    return _ask(lineage.lineage, row.run_id, row.trajectory_id, row.question_index, row.step)


def get_question(run_id: str, question_index: int) -> QuestionRow | None:
    """Return a training question of a run."""
    return _ask(lineage.get_question, run_id, question_index)


def group_members(run_id: str, step: int, question_index: int) -> list[GroupMemberRow]:
    """Return the K trajectories of a question in a step."""
    return _ask(lineage.group_members, run_id, step, question_index)


def attempts_at_question(question_id: str) -> list[AttemptedRow]:
    """Return how a question fared, by run and step."""
    return _ask(lineage.attempts_at_question, question_id)


def runs_root() -> str:
    """Return the folder that holds the runs, which tells answers kept for one workbench from those of another."""
    return str(settings.current().runs_root)


def log_tail(run_id: str, num_lines: int) -> list[str]:
    """Return the last lines of a run's log, as they are; none if there is no log yet."""
    if get_run(run_id) is None:
        return []
    path = settings.current().runs_root / Path(run_id).name / "log.txt"
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - _LOG_BYTES))
            return file.read().decode("utf-8", errors="replace").splitlines()[-num_lines:]
    except OSError:
        return []


def supervisor_age_seconds() -> float | None:
    """Return how long ago the supervisor was last alive, or None if it never ran here."""
    path = settings.current().runs_root / "workbench" / "supervisor.json"
    try:
        at = datetime.fromisoformat(json.loads(path.read_text(encoding="utf-8"))["at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (datetime.now(UTC) - as_utc(at)).total_seconds()


def _list_page(database: Database, where: RunFilter, before: RunPageKey | None) -> list[RunRow]:
    return runs.list_runs(database, where, before=before, limit=RUNS_PAGE_SIZE)


def _snippet_page(database: Database, facets: TrajectoryFacets, before: int | None) -> list[SnippetRow]:
    return trajectory_list.list_snippets(database, facets, before=before, limit=TRAJECTORIES_PAGE_SIZE)


def _ask(query: Callable[..., Answer], *arguments: Hashable) -> Answer:
    place, name = settings.current(), f"{query.__module__}.{query.__qualname__}"
    return last_answers.ask((place, name, arguments), lambda: _answer(place, name, arguments, query), AWAY_ERRORS)


@st.cache_data(ttl=ANSWER_SECONDS, show_spinner=False, max_entries=500)
def _answer(
    place: AppSettings,
    name: str,  # noqa: ARG001 - part of the cache key, which leaves functions out
    arguments: tuple[object, ...],
    _query: Callable[..., Answer],
) -> Answer:
    try:
        return _query(_database(place), *arguments)
    except AWAY_ERRORS:
        _database.clear()  # a connection that went bad may not come back by itself
        raise


@st.cache_resource(show_spinner=False)
def _database(place: AppSettings) -> Database:
    return open_database(place.database_url, place.runs_root)
