"""The playground of a run: its checkpoints, and the model that it began with, answer a prompt."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import Any

import streamlit as st

from app import requests
from app.components.playground import answers, prompt_form
from app.components.playground.prompt_form import Question
from app.components.widgets import empty_state, notice
from db.rows.runs import CheckpointRow, RunRow


def show(row: RunRow, spec: Mapping[str, Any], checkpoints: Sequence[CheckpointRow]) -> None:
    """Show the form, and the answers to what it asked last."""
    if not checkpoints:
        empty_state.show("forum", "No checkpoint yet", "Once there is one, it answers prompts here.")
        return
    question = prompt_form.show(row, spec, checkpoints)
    key = f"playground-answers-{row.run_id}"
    if question is not None:
        st.session_state[key] = question.steps, _ask(row.run_id, question)
    if key in st.session_state:
        answers.show(*st.session_state[key])


def _ask(run_id: str, question: Question) -> list[dict[str, Any]]:
    """Return the records of the answers; leaving the page ends the process that makes them."""
    by_target = {f"{run_id}@{step}": step for step in question.steps}
    records: list[dict[str, Any]] = []
    line = st.empty()
    try:
        with closing(requests.chat(list(by_target), question.prompt, question.options)) as stream:
            for record in stream:
                if record is not None:
                    records.append({**record, "step": by_target[record["model"]]})
                # Writing to the page is where Streamlit ends a script whose page was left.
                line.progress(_share_done(records, question), "The models are loaded one after the other and answer.")
    except requests.UserError as error:
        notice.show("error", "No answer", str(error))
    line.empty()
    return records


def _share_done(records: Sequence[dict[str, Any]], question: Question) -> float:
    return len(records) / ((question.num_answers + 1) * len(question.steps))
