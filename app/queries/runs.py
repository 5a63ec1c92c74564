"""Runs: lists, curves over any x axis, reads that combine several queries, their logs, and the supervisor."""

import math
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.queries.answers import UnavailableError, ask, ask_outside_pages, ask_pages, kept
from exgrpo.db.queries import metrics, runs, selections, trajectory_list
from exgrpo.db.queries.run_filter import NEWEST_FIRST, RunFilter, RunOrder
from exgrpo.db.rows.replays import WrongChoiceRow
from exgrpo.db.rows.runs import MetricPoint, RunRow
from exgrpo.db.rows.trajectories import TrajectoryFacets, TrajectoryOrder, TrajectoryRow
from exgrpo_core.bounded_json import open_plain
from exgrpo_core.errors import InputError

RUNS_PAGE_SIZE = 100
MAX_CHART_POINTS = 300
TRAINING_RUNS = RunFilter(kinds=("train",))
RECHECKED_STEPS = 20


def has_replays() -> bool:
    """Whether pages about replays have anything to show; without the database they say so themselves."""
    try:
        return ask(runs.has_buffers)
    except UnavailableError:
        return True


def list_runs(where: RunFilter, num_pages: int = 1, order: RunOrder = NEWEST_FIRST) -> list[RunRow]:
    """Return the first pages of matching runs."""

    def page_after(last: RunRow | None) -> list[RunRow]:
        return ask(runs.list_runs, where, order=order, after=last.run_id if last else None, limit=RUNS_PAGE_SIZE)

    return ask_pages(page_after, RUNS_PAGE_SIZE, num_pages)


def whole_trajectories(where: TrajectoryFacets, order: TrajectoryOrder | None) -> Iterator[list[TrajectoryRow]]:
    """Return all trajectories that match, with whole texts, in batches, for a request of no page."""
    return ask_outside_pages(trajectory_list.iterate_whole, where, order)


def training_names(words: str = "", *, has_steps: bool = False) -> list[runs.RunName]:
    """Return the newest training runs that match the words; with `has_steps` only those with a finished step."""
    return ask(runs.list_run_names, replace(TRAINING_RUNS, words=words), has_steps=has_steps, limit=RUNS_PAGE_SIZE)


def names_for_keyboard(words: str, num_runs: int) -> list[runs.RunName]:
    """Return the newest runs that match the words, for a request of the browser's script; none without a database."""
    with suppress(UnavailableError, InputError):
        return ask_outside_pages(runs.list_run_names, RunFilter(words), limit=num_runs)
    return []


def metric_series(run_id: str, keys: Sequence[str], *, with_parents: bool = False) -> dict[str, list[MetricPoint]]:
    """Return at most `MAX_CHART_POINTS` points of each metric, if asked with those of the steps before a branch."""
    return ask(metrics.metric_series, run_id, tuple(keys), MAX_CHART_POINTS, with_parents=with_parents)


def whole_curves(run_ids: Sequence[str]) -> list[dict[str, object]]:
    """Return one row a run and step with every metric and evaluation as recorded, these with their intervals."""
    rows = []
    for run_id in run_ids:
        by_step: dict[int, dict[str, object]] = {}
        keys = tuple(sorted(ask(metrics.last_metrics, run_id)))
        for key, points in ask(metrics.metric_series, run_id, keys, None).items():
            for step, value in points:
                # A file's empty cell says that nothing was recorded.
                by_step.setdefault(step, {})[key] = "NaN" if math.isnan(value) else value
        for row in ask(metrics.list_evaluations, run_id):
            name, (low, high) = f"{row.question_set} Avg@{row.samples_per_question}", row.interval
            scores = {name: row.avg_at_n, f"{name} 95% from": low, f"{name} 95% to": high}
            by_step.setdefault(row.step, {}).update(scores)
        rows += [{"run": run_id, "step": step, **by_step[step]} for step in sorted(by_step)]
    return rows


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
        return ask(metrics.clock_seconds, run_id, MAX_CHART_POINTS, with_parents=True)
    return metric_series(run_id, [_KEYS[axis]], with_parents=True)[_KEYS[axis]]


def clock_at_end(row: RunRow) -> float | None:
    """Return the seconds on the clock at the last step of a run that has ended; None without a step."""
    points = kept(ask, metrics.clock_seconds, row.run_id, 1, until=(row.attempt, row.step, row.ended_at))
    return points[-1].value if points else None


def wrong_choices(run_id: str) -> list[WrongChoiceRow]:
    """Return the selections of a whole run that contradict their recorded scores.

    The first call for a long run checks a million candidates; later calls check the new steps only.
    """
    row = ask(runs.get_run, run_id)
    if row is None:
        return []
    known = _checked().get((settings.runs_root(), run_id))
    if known is None or known.attempt != row.attempt or known.step > row.step:
        known = _Checked(row.attempt, 0, [])
    wrong = [*known.wrong, *ask(selections.wrong_choices, run_id, known.step)][: selections.MAX_WRONG]
    # The newest steps may not be complete in the database yet, so they are checked again.
    last = max(0, row.step - RECHECKED_STEPS)
    older = [choice for choice in wrong if choice.step < last]
    _checked()[settings.runs_root(), run_id] = _Checked(row.attempt, last, older)
    return wrong


@dataclass(frozen=True, slots=True)
class _Checked:
    """The wrong choices before a step of an attempt."""

    attempt: int
    step: int
    wrong: list[WrongChoiceRow]


@st.cache_resource(show_spinner=False)
def _checked() -> dict[tuple[Path, str], _Checked]:
    return {}


SUPERVISOR_LOST_SECONDS = 15.0
_LOG_BYTES = 128 * 1024
_LINE_BYTES = 4096
"""More of a line is not read."""
_SEARCHED_SECONDS = 30
"""A search reads the whole log, which may be gigabytes; a page that shows it refreshes each few seconds."""


def has_folder(run_id: str) -> bool:
    """Return whether the runs root has a run of this id, even if the database does not know it yet."""
    return _run_file(run_id, "spec.json") is not None


@dataclass(frozen=True, slots=True)
class LogLines:
    """Lines of a log with their numbers from 1, the last of all that match."""

    lines: list[tuple[int, str]]
    num_matching: int
    num_bytes: int


def read_log(run_id: str, words: str, num_lines: int) -> LogLines:
    """Return the last lines of a run's log, of those that contain the words if there are any; none without a log.

    Case does not matter. Without words the last `_LOG_BYTES` are read and lines have no numbers.
    """
    path = log_file(run_id)
    if path is None:
        return LogLines([], 0, 0)
    return (_search_log if words else _read_lines)(path, words, num_lines)


@st.cache_data(ttl=_SEARCHED_SECONDS, max_entries=20, show_spinner=False)
def _search_log(path: Path, words: str, num_lines: int) -> LogLines:
    return _read_lines(path, words, num_lines)


def _read_lines(path: Path, words: str, num_lines: int) -> LogLines:
    matching: deque[tuple[int, str]] = deque(maxlen=num_lines)
    num_matching, wanted = 0, words.casefold()
    try:
        with open_plain(path) as file:
            num_bytes = path.stat().st_size
            if not words and num_bytes > _LOG_BYTES:
                file.seek(num_bytes - _LOG_BYTES)
                file.readline()
                num_matching = 1  # what comes before
            for number, line in enumerate(file, 1):
                text = line[:_LINE_BYTES].decode("utf-8", errors="replace").rstrip()
                if wanted in text.casefold():
                    num_matching += 1
                    matching.append((number if words else 0, text))
    except OSError:
        return LogLines([], 0, 0)
    return LogLines(list(matching), num_matching, num_bytes)


def log_file(run_id: str) -> Path | None:
    """Return the path of a run's log; None of a run that the database does not know, and where there is no log."""
    path = _run_file(run_id, "log.txt")
    return None if path is None or ask(runs.get_run, run_id) is None else path


def _run_file(run_id: str, name: str) -> Path | None:
    """Return a file of a run; None if it does not exist or lies outside the runs root, by id or by a link."""
    here = settings.current()
    root = here.runs_root.resolve()
    try:
        # A view's run folders are links to where they lie.
        folder = (root / run_id).resolve() if here.is_view and Path(run_id).name == run_id else root / run_id
        path = (folder / name).resolve()
        is_inside = path.parent == folder if here.is_view else path.parent.parent == root
        return path if is_inside and path.is_file() else None
    except (OSError, ValueError):
        return None
