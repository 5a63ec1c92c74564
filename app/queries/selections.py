"""The check of every selection of a run against its own recorded scores."""

from dataclasses import dataclass

import streamlit as st

from app.queries.answers import ask
from app.queries.workbench import current_runs_root
from db.queries import runs, selections
from db.rows.selections import WrongChoiceRow

RECHECKED_STEPS = 20


def wrong_choices(run_id: str) -> list[WrongChoiceRow]:
    """Return the selections of a whole run that contradict their own recorded scores.

    A page of a long run checks a million candidates once: later only the steps that came since then.
    """
    row = ask(runs.get_run, run_id)
    if row is None:
        return []
    known = _checked().get((current_runs_root(), run_id))
    if known is None or known.attempt != row.attempt or known.step > row.step:
        known = _Checked(row.attempt, 0, [])
    wrong = [*known.wrong, *ask(selections.wrong_choices, run_id, known.step)][: selections.MAX_WRONG]
    # The newest steps may still be on their way into the database, so they are checked again.
    last = max(0, row.step - RECHECKED_STEPS)
    older = [choice for choice in wrong if choice.step < last]
    _checked()[current_runs_root(), run_id] = _Checked(row.attempt, last, older)
    return wrong


@dataclass(frozen=True, slots=True)
class _Checked:
    """What is known of the choices before a step of an attempt."""

    attempt: int
    step: int
    wrong: list[WrongChoiceRow]


@st.cache_resource(show_spinner=False)
def _checked() -> dict[tuple[str, str], _Checked]:
    return {}
