"""The prompt, the two models that answer it, and how they sample."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import streamlit as st

from db.rows.algorithm_of_spec import algorithm_settings
from db.rows.runs import CheckpointRow, RunRow

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


def show(row: RunRow, spec: Mapping[str, Any], checkpoints: Sequence[CheckpointRow]) -> Question | None:
    """Show the form; return what is asked when it is sent."""
    steps = [str(checkpoint.step) for checkpoint in reversed(checkpoints)]
    algorithm = algorithm_settings(spec)
    usual = max(0.0, float(algorithm["temperature"]))
    with st.form(f"playground-{row.run_id}", enter_to_submit=False):
        prompt = st.text_area(
            "Prompt", key=f"playground-prompt-{row.run_id}", placeholder="A question, as in the training data"
        )
        columns = st.columns(5, gap="small", vertical_alignment="bottom")
        first = columns[0].selectbox("Model", [*steps, START], format_func=name_of)
        second = columns[1].selectbox("Beside it", [START, *steps, _NOBODY], format_func=name_of)
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


def name_of(step: str) -> str:
    """Return a model's name on the page."""
    return "Before training" if step == START else "None" if step == _NOBODY else f"Step {int(step):,}"
