"""What the chosen data looks like: first prompts as the model will read them, and how long they are."""

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from app import requests, theme
from app.components.widgets import figures, notice
from app.formats import escape_control_characters, literal
from app.requests import DataError, DataPreview, TrainSpec

_SECONDS = 60


def show(spec: TrainSpec) -> None:
    """Show a fold with the preview; data is read when it is open."""
    fold = st.expander(
        "Data preview", icon=":material/dataset:", key="data-preview", on_change="rerun", bind="query-params"
    )
    if not fold.open:
        return
    with fold:
        try:
            preview = _preview(spec.model_dump_json(include={"data", "model", "kind"}), spec)
        except (DataError, OSError, ValueError) as error:
            notice.show("info", "No preview", str(error))
            return
        _show(preview, spec.algorithm.max_prompt_tokens)


@st.cache_data(ttl=_SECONDS, show_spinner="Reading the first rows", max_entries=20)
def _preview(key: str, _spec: TrainSpec) -> DataPreview:  # noqa: ARG001 - what the preview depends on
    return requests.preview_data(_spec)


def _show(preview: DataPreview, max_prompt_tokens: int) -> None:
    unit = "tokens" if preview.is_in_tokens else "characters"
    figures.show_card(
        "Length of prompts",
        f"{unit}, of the first {len(preview.lengths):,} questions",
        histogram(preview, max_prompt_tokens),
        "prompt-lengths",
        f"Histogram of prompt lengths in {unit}",
    )
    if preview.notice:
        st.caption(preview.notice)
    for number, question in enumerate(preview.questions, start=1):
        st.caption(f"Question {number} · gold answer {literal(question.answer)} · graded as {question.graded_as}")
        st.code(escape_control_characters(question.prompt), language=None, wrap_lines=True)


def histogram(preview: DataPreview, max_prompt_tokens: int) -> go.Figure:
    """Return how many prompts are how long, with the longest allowed where lengths are in tokens."""
    colours = theme.palette()
    lengths = np.array(preview.lengths, dtype=np.int32)
    counts, edges = np.histogram(lengths, bins=min(40, max(1, int(np.ptp(lengths)) + 1)))
    figure = figures.new_figure(height=190)
    figure.add_trace(
        go.Bar(
            x=((edges[:-1] + edges[1:]) / 2).astype(np.float32),
            y=counts.astype(np.int32),
            width=np.diff(edges).astype(np.float32),
            marker={"color": colours.fresh, "line": {"width": 0}},
            hovertemplate="about %{x:.0f}: %{y:,} prompts<extra></extra>",
        )
    )
    figure.update_layout(hovermode="closest", bargap=0.05)
    figure.update_xaxes(title={"text": "tokens" if preview.is_in_tokens else "characters"})
    if preview.is_in_tokens and lengths.max() > 0.5 * max_prompt_tokens:
        figure.add_vline(
            x=max_prompt_tokens, line={"color": colours.warning, "dash": "dash"}, annotation_text="longest allowed"
        )
    return figure
