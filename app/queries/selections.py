"""The check of every selection of a run against its recorded scores."""

from dataclasses import dataclass

import streamlit as st

from app.queries.answers import ask
from app.queries.workbench import current_runs_root
from db.queries import runs, selections
from db.rows.selections import WrongChoiceRow

RECHECKED_STEPS = 20


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
