"""The playground of a run: its checkpoints, and the model that it began with, answer a prompt."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import streamlit as st

from exgrpo.app.components.trajectories import token_heatmap
from exgrpo.app.components.trajectories.token_heatmap import TokenValues
from exgrpo.app.components.widgets import notice, shown_text
from exgrpo.app.formats import nats, token_count
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.runs import CheckpointRow, RunRow
from exgrpo.db.rows.spec_fields import algorithm_settings
from exgrpo.jobs.actions.playground import process

Record = Mapping[str, Any]
START = "start"
MAX_ANSWERS = 8
_NOBODY = "nobody"
_ANSWER_TOKENS = 256
"""Longest answer offered first, where the run's is longer."""


@dataclass(frozen=True, slots=True)
class Question:
    """What the form asks; `steps` are checkpoints, or `start`."""

    prompt: str
    steps: list[str]
    num_answers: int
    temperature: float
    max_tokens: int

    @property
    def options(self) -> list[str]:
        """Options of `exgrpo chat`."""
        numbers = {"-n": self.num_answers, "--temperature": self.temperature, "--max-tokens": self.max_tokens}
        return [word for option, value in numbers.items() for word in (option, str(value))]


def show(row: RunRow, spec: Mapping[str, Any], checkpoints: Sequence[CheckpointRow]) -> None:
    """Show the form, and the answers to what it asked last."""
    if not checkpoints:
        notice.show_empty(
            "forum", "No checkpoint yet", "When the first checkpoint is saved, you can ask it questions here."
        )
        return
    question = _show_form(row, spec, checkpoints)
    key = f"playground-answers-{row.run_id}"
    if question is not None:
        st.session_state[key] = question.steps, _ask(row.run_id, question)
    if key in st.session_state:
        show_answers(*st.session_state[key])


def _ask(run_id: str, question: Question) -> list[dict[str, Any]]:
    """Return the records of the answers; leaving the page ends the process that makes them."""
    by_target = {f"{run_id}@{step}": step for step in question.steps}
    records: list[dict[str, Any]] = []
    line = st.empty()
    num_wanted = (question.num_answers + 1) * len(question.steps)
    with (
        notice.refusals("No answer"),
        closing(process.ask_models(runs_root(), list(by_target), question.prompt, question.options)) as stream,
    ):
        for record in stream:
            if record:
                records.append({**record, "step": by_target[record["model"]]})
            # Writing to the page is where Streamlit ends a script whose page was left.
            words = process.WAITS if record is None else "The models are loaded one after the other and answer."
            line.progress(len(records) / num_wanted, words)
    line.empty()
    return records


def show_answers(steps: Sequence[str], records: Sequence[Record]) -> None:
    """Show one column for each model; colours of all answers have one scale."""
    answers = [record for record in records if "sample" in record]
    top = max((max(record["entropies"]) for record in answers), default=0.0)
    for column, step in zip(st.columns(len(steps), gap="medium"), steps, strict=True):
        of_step = [record for record in answers if record["step"] == step]
        with column:
            st.markdown(f"**{_name_of(step)}**")
            for record in of_step:
                _show_answer(record, top)
    for record in records:
        if "prompt" in record:
            with st.expander("The prompt, in the chat template", icon=":material/notes:"):
                shown_text.show_raw(record["prompt"])
            break
    if answers:
        st.caption("The stronger the colour, the higher the entropy of what the token was drawn from, on one scale.")


def _show_answer(record: Record, top: float) -> None:
    entropies = np.asarray(record["entropies"])
    cut = " · cut at the length limit" if record["is_truncated"] else ""
    with st.container(border=True):
        st.caption(f"{token_count(len(entropies))} tokens · mean entropy {nats(float(entropies.mean()))}{cut}")
        values = TokenValues(record["token_ids"], record["texts"], record["entropies"], record["log_probs"], [])
        shown_text.show_marked(token_heatmap.parts(values, "Entropy", entropies, slice(None), top))


def _show_form(row: RunRow, spec: Mapping[str, Any], checkpoints: Sequence[CheckpointRow]) -> Question | None:
    steps = [str(checkpoint.step) for checkpoint in reversed(checkpoints)]
    algorithm = algorithm_settings(spec)
    usual = max(0.0, float(algorithm["temperature"]))
    with st.form(f"playground-{row.run_id}", enter_to_submit=False):
        prompt = st.text_area(
            "Prompt", key=f"playground-prompt-{row.run_id}", placeholder="A question, as in the training data"
        )
        columns = st.columns(5, gap="small", vertical_alignment="bottom")
        first = columns[0].selectbox("Model", [*steps, START], format_func=_name_of)
        second = columns[1].selectbox("Compare with", [START, *steps, _NOBODY], format_func=_name_of)
        number = columns[2].number_input("Answers of each", 1, MAX_ANSWERS, 2)
        temperature = columns[3].number_input(
            "Temperature", 0.0, max(2.0, usual), usual, step=0.1, help="The run's at first; 0 is greedy"
        )
        longest = max(1, int(algorithm["max_response_tokens"]))
        tokens = columns[4].number_input("Longest answer, tokens", 1, longest, min(longest, _ANSWER_TOKENS))
        is_sent = st.form_submit_button("Ask", icon=":material/send:", type="primary")
    if not is_sent or not prompt.strip():
        return None
    # Before training on the left.
    models = sorted({first, second} - {_NOBODY}, key=lambda step: -1 if step == START else int(step))
    return Question(prompt, models, int(number), float(temperature), int(tokens))


def _name_of(step: str) -> str:
    return "Before training" if step == START else "None" if step == _NOBODY else f"Step {int(step):,}"
