"""The replay buffer at any step, and what each step selected from it."""

from collections.abc import Sequence
from dataclasses import dataclass

import streamlit as st

from app.queries.answers import ask
from app.queries.runs import get_run
from app.queries.workbench import runs_root
from db.queries import buffer, buffer_history, replay_ratios, selections
from db.rows.buffer import BufferedQuestionRow, BufferState, ScoredRow, StoredRow
from db.rows.runs import BucketRow, CandidateRow
from db.rows.selections import SelectionRow, WrongChoiceRow

RECHECKED_STEPS = 20


def bucket_grid(run_id: str) -> list[BucketRow]:
    """Return every bucket of every step."""
    return ask(buffer.bucket_grid, run_id)


def buffer_state(run_id: str, step: int) -> BufferState:
    """Return the buffer and the retired set after a step."""
    return ask(buffer_history.state_at, run_id, step)


def count_other_questions(run_id: str, other_id: str) -> int:
    """Return how many training questions of a run are not the same, under the same number, in another."""
    return ask(buffer_history.count_other_questions, run_id, other_id)


def buckets_at(run_id: str, step: int) -> list[BucketRow]:
    """Return the buckets as they stood when a step drew from them."""
    return ask(buffer_history.buckets_at, run_id, step)


def buffer_births(run_id: str, step: int) -> dict[int, int]:
    """Return how many trajectories the buffer held after a step, by the step of their birth."""
    return ask(buffer_history.births, run_id, step)


def replay_counts(run_id: str, step: int) -> dict[int, int]:
    """Return how many of the trajectories held after a step were replayed how often."""
    return ask(buffer_history.replay_counts, run_id, step)


def questions_born(run_id: str, step: int, born_step: int) -> list[int]:
    """Return the questions with a trajectory of this birth in the buffer after a step."""
    return ask(buffer_history.questions_born, run_id, step, born_step)


def questions_replayed(run_id: str, step: int, num_replays: int) -> list[int]:
    """Return the questions with a trajectory replayed exactly so often in the buffer after a step."""
    return ask(buffer_history.questions_replayed, run_id, step, num_replays)


def scores_by_bucket(run_id: str, step_from: int, step_to: int) -> list[ScoredRow]:
    """Return the scores of candidates given in these steps."""
    return ask(buffer_history.scores_by_bucket, run_id, step_from, step_to)


def buffered_questions(run_id: str, step: int, question_indices: Sequence[int]) -> list[BufferedQuestionRow]:
    """Return what the buffer held of some questions after a step."""
    return ask(buffer_history.buffered_questions, run_id, step, tuple(question_indices))


def stored_candidates(run_id: str, step: int, question_indices: Sequence[int]) -> list[StoredRow]:
    """Return the candidates that some questions had before a step, with their newest scores."""
    return ask(buffer_history.stored_candidates, run_id, step, tuple(question_indices))


def candidates(run_id: str, step: int) -> list[CandidateRow]:
    """Return every candidate of every selection of a step."""
    return ask(buffer.candidates, run_id, step)


def steps_with_selections(run_id: str) -> list[int]:
    """Return the steps that drew from the buffer, in order."""
    return ask(selections.steps_with_selections, run_id)


def list_selections(run_id: str, step: int) -> list[SelectionRow]:
    """Return what a step selected for replay, by question."""
    return ask(selections.list_selections, run_id, step)


def ratios_by_step(run_id: str) -> dict[int, list[float]]:
    """Return the mean importance ratio of each replayed trajectory by step, of steps evenly spread."""
    return ask(replay_ratios.replay_ratios, run_id)


def wrong_choices(run_id: str) -> list[WrongChoiceRow]:
    """Return the selections of a whole run that contradict their own recorded scores.

    A page of a long run checks a million candidates once: later only the steps that came since then.
    """
    row = get_run(run_id)
    if row is None:
        return []
    known = _checked().get((runs_root(), run_id))
    if known is None or known.attempt != row.attempt or known.step > row.step:
        known = _Checked(row.attempt, 0, [])
    found = [*known.wrong, *ask(selections.wrong_choices, run_id, known.step)][: selections.MAX_WRONG]
    # The newest steps may still be on their way into the database, so they are checked again.
    last = max(0, row.step - RECHECKED_STEPS)
    older = [choice for choice in found if choice.step < last]
    _checked()[runs_root(), run_id] = _Checked(row.attempt, last, older)
    return found


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is known of the choices before a step of an attempt."""

    attempt: int
    step: int
    wrong: list[WrongChoiceRow]


@st.cache_resource(show_spinner=False)
def _checked() -> dict[tuple[str, str], _Checked]:
    return {}
