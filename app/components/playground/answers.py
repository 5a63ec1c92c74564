"""Answers of models side by side, each token coloured by its entropy."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import streamlit as st

from app.components.playground.prompt_form import name_of
from app.components.trajectories import token_heatmap
from app.components.trajectories.token_heatmap import TokenValues
from app.components.widgets import shown_text
from app.formats import escape_control_characters, nats, token_count

Record = Mapping[str, Any]


def show(steps: Sequence[str], records: Sequence[Record]) -> None:
    """Show one column for each model; colours of all answers have one scale."""
    answers = [record for record in records if "sample" in record]
    top = max((max(record["entropies"]) for record in answers), default=0.0)
    for column, step in zip(st.columns(len(steps), gap="medium"), steps, strict=True):
        of_step = [record for record in answers if record["step"] == step]
        with column:
            st.markdown(f"**{name_of(step)}**")
            for record in of_step:
                _show_answer(record, top)
    for record in records:
        if "prompt" in record:
            with st.expander("The prompt as the model gets it", icon=":material/notes:"):
                st.code(escape_control_characters(record["prompt"]), language=None, wrap_lines=True)
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
