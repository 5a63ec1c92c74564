"""The answers of a scored model whose correctness depends on the scheme of scoring."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app.components.benchmarks.score_table import ScoreLine
from app.components.widgets import address_choice, exports
from app.formats import escape_control_characters
from app.queries.answers import ask
from db.queries import benchmarks
from db.rows.scores import DisputedAnswerRow

_OUTCOMES = ("paper", "training", "corrected")


def show(lines: Sequence[ScoreLine]) -> None:
    """Show the choice of a model and its disputed answers; the model is in the address."""
    names = {line.key: f"{line.name} ({line.group})" for line in lines}
    chosen = address_choice.select("Model", names, "disputed", lines[0].key, width=420)
    line = next(line for line in lines if line.key == chosen)
    counting = {(run_id, name) for name, run_id in line.scored}
    rows = [
        row
        for run_id in line.evaluations
        for row in ask(benchmarks.list_disputed, run_id)
        if (run_id, row.benchmark) in counting
    ]
    if not rows:
        st.markdown(":gray[The schemes agree on every recorded answer.]")
        return
    frame = table(rows)
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.caption(f"{len(rows):,} answers", width="content")
        exports.show(frame, "disputed-answers")
    st.dataframe(frame, hide_index=True, height=380, alt="Answers on which the schemes of scoring differ")


def table(rows: Sequence[DisputedAnswerRow]) -> pd.DataFrame:
    """Return one row per answer: the boxed answer, the gold answer, and the outcome by each scheme."""
    frame = {
        "Benchmark": [row.benchmark for row in rows],
        "Question": [escape_control_characters(row.question_id) for row in rows],
        "Sample": [row.sample + 1 for row in rows],
        "Gold": [escape_control_characters(row.gold) for row in rows],
        "Boxed": [escape_control_characters(row.answer) for row in rows],
    }
    return pd.DataFrame(frame | {name: [getattr(row, name) for row in rows] for name in _OUTCOMES})
