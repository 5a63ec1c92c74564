"""Training runs by typed text: a choice offers the newest runs, and typing searches all of them."""

from collections.abc import Callable, Collection, Mapping

import streamlit as st

from app.formats import escape_control_characters, literal
from app.queries.answers import ask
from app.queries.runs import training_names
from db.queries import runs

PLACEHOLDER = "Choose a run, or type to find an older one"


def label_by(names: Mapping[str, str]) -> Callable[[str | None], str]:
    """Return the function that labels a run's id in a choice: with its name, or unchanged if it was typed."""
    return lambda run_id: escape_control_characters(names.get(run_id or "", run_id or ""))


def find(typed: str, offered: Collection[str], *, has_steps: bool = False) -> str | None:
    """Return the id of the run that was chosen or typed: one that is offered, an id, or the newest with those words.

    If no run matches, show a message and return None.
    """
    if typed in offered:
        return typed
    row = ask(runs.get_run, typed)
    if row is not None and row.kind == "train":
        return row.run_id
    matches = training_names(typed, has_steps=has_steps) if typed.strip() else []
    if matches:
        return matches[0].run_id
    st.toast(f"No training run is called, or has in its name, method, data or tags: {literal(typed)}")
    return None
