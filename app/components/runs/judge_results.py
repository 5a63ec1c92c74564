"""The results of a judge's votes."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from app.components.widgets import empty_state, exports
from app.formats import escape_control_characters, number, share
from db.rows.judging import JudgeRow

_COUNTS = (("Valid", "num_valid"), ("Not valid", "num_invalid"), ("Unjudged", "num_unjudged"))


def show(rows: Sequence[JudgeRow], reasons: Mapping[str, int]) -> None:
    """Show counts of verdicts over responses, what they cost, and why votes gave no verdict."""
    if not rows:
        empty_state.show("gavel", "No verdict yet", "Verdicts appear after the judge's first votes.")
        return
    for row in rows:
        tiles = st.columns(4, gap="small")
        for tile, (name, field) in zip(tiles, _COUNTS, strict=False):
            count = getattr(row, field)
            tile.metric(
                name, number(count), share(count / row.num_responses), delta_color="off", delta_arrow="off",
                border=True, height="stretch", help="Responses, by the majority of their votes",
            )  # fmt: skip
        tiles[3].metric(
            "Tokens", number(row.num_tokens), f"{number(row.num_votes)} votes", delta_color="off", delta_arrow="off",
            border=True, height="stretch", help="Prompt and answer tokens that the judge took",
        )  # fmt: skip
        st.text(escape_control_characters(f"Judge {row.judge}, prompt {row.prompt}, on {row.source}"))
    if reasons:
        frame = pd.DataFrame({"Why a vote gave no verdict": list(reasons), "Votes": list(reasons.values())})
        st.dataframe(frame, hide_index=True, alt="Reasons of votes without a verdict")
        exports.show(frame, "unjudged-votes")
