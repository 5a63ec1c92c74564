"""A list of trajectories with the start of each text, that opens one on a click."""

import hashlib
from collections.abc import Sequence

import pandas as pd
import streamlit as st
from streamlit.elements.lib.column_types import ColumnConfig

from app import address, theme
from app.components.widgets import address_choice, exports
from app.formats import NONE_SHOWN, escape_control_characters
from db.rows.trajectories import SnippetRow

_SIGNS = {True: "yes", False: "no", None: NONE_SHOWN}


def show(rows: Sequence[SnippetRow], opened: int | None) -> None:
    """Show the rows; a click writes the trajectory into the address. An open one below makes the table lower."""
    most = 6 if opened is not None else 15
    key = f"trajectories-{hashlib.sha256(repr([row.trajectory_key for row in rows]).encode()).hexdigest()[:16]}"
    frame = table(rows)
    selected = next((number for number, row in enumerate(rows) if row.trajectory_id == opened), None)
    address_choice.select_row(key, selected, "Id")
    st.dataframe(
        frame,
        key=key,
        hide_index=True,
        row_height=theme.ROW_HEIGHT,
        height=theme.table_height(len(rows), most),
        column_config=_columns(),
        on_select=lambda: _open(key, rows),
        selection_mode="single-cell",
        placeholder=NONE_SHOWN,
        alt="Table of trajectories: step, question, verdict, length, entropy, replays and the start of the text",
    )
    exports.show(frame, "trajectories")


def table(rows: Sequence[SnippetRow]) -> pd.DataFrame:
    """Return the table of trajectories, one row each."""
    return pd.DataFrame(
        {
            "Id": [row.trajectory_id for row in rows],
            "Step": [row.step for row in rows],
            "Question": [row.question_index for row in rows],
            "Verdict": [[row.verdict] for row in rows],
            "Tokens": [row.num_tokens or None for row in rows],
            "Entropy": [row.mean_entropy for row in rows],
            "Replays": [row.num_replays for row in rows],
            "Valid": [_SIGNS[row.is_valid] for row in rows],
            "Code": [_SIGNS[row.has_code] for row in rows],
            "Text": [escape_control_characters(row.snippet) for row in rows],
        }
    )


def _columns() -> dict[str, ColumnConfig]:
    config = st.column_config
    verdicts = {
        "correct": "#0072B2",
        "wrong": "#C8553D",
        "unparsed": "#8A6D10",
        "timeout": "#7C4FB0",
        "crash": "#64748B",
    }
    return {
        "Id": config.NumberColumn(width=64, format="%d", help="Click a row to open the trajectory"),
        "Step": config.NumberColumn(width=56, format="%d"),
        "Question": config.NumberColumn(width=76, format="%d"),
        "Verdict": config.MultiselectColumn(width=92, options=list(verdicts), color=list(verdicts.values())),
        "Tokens": config.NumberColumn(width=64, format="%d"),
        "Entropy": config.NumberColumn(width=70, format="%.3f", help="Mean token entropy at rollout, nats"),
        "Replays": config.NumberColumn(width=68, format="%d", help="How often it was replayed since"),
        "Valid": config.TextColumn(width=56, help="Whether the chain of thought is valid, by the task's oracle"),
        "Code": config.TextColumn(width=56),
        "Text": config.TextColumn(width="large"),
    }


def _open(key: str, rows: Sequence[SnippetRow]) -> None:
    index = address_choice.clicked_row(key, len(rows))
    if index is not None:
        address.put({"trajectory": str(rows[index].trajectory_id)})
