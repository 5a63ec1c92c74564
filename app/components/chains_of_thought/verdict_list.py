"""Correct answers beside their verdicts: judged, not yet judged, disputed."""

import hashlib
from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from app import address, theme
from app.components.widgets import address_choice, empty_state, exports
from app.formats import NONE_SHOWN, VALIDITY, escape_control_characters
from app.queries import judging
from app.queries.answers import ask
from db.queries import judge_work
from db.rows.verdicts import JudgedRow, VerdictFilter

MAX_COUNT = 10_000
_NAMES = {
    VerdictFilter.ALL: "All",
    VerdictFilter.JUDGED: "Judged",
    VerdictFilter.UNJUDGED: "Unjudged",
    VerdictFilter.DISPUTED: "Disputed",
}


def show(run_id: str, judge_run_id: str | None, opened: int | None) -> None:
    """Show the choice, which is in the address, and the list; a click writes the trajectory into the address."""
    counts = ask(judge_work.count_verdicts, run_id, judge_run_id)
    which = _choose(counts)
    pages = st.session_state.setdefault("verdict-pages", {})
    page_key = (run_id, judge_run_id, which)
    rows = judging.list_verdicts(run_id, judge_run_id, which, pages.get(page_key, 1))
    if not rows:
        title = "No correct answer yet" if which is VerdictFilter.ALL else f"None {_NAMES[which].lower()}"
        empty_state.show("gavel", title, _why(which))
        return
    frame = table(rows)
    if judge_run_id is None:
        frame = frame.drop(columns=["Judge", "Votes", "Why unjudged"])  # these columns describe judges only
    most = 6 if opened is not None else 14
    key = f"verdicts-{hashlib.sha256(repr([row.trajectory_key for row in rows]).encode()).hexdigest()[:16]}"
    selected = next((number for number, row in enumerate(rows) if row.trajectory_id == opened), None)
    address_choice.select_row(key, selected, "Id")
    st.dataframe(
        frame,
        key=key,
        hide_index=True,
        row_height=theme.ROW_HEIGHT,
        height=theme.table_height(len(rows), most),
        on_select=lambda: _open(key, rows),
        selection_mode="single-cell",
        placeholder=NONE_SHOWN,
        column_config={
            "Entropy": st.column_config.NumberColumn(format="%.4f", help="Mean token entropy at rollout, nats"),
            "Judge": st.column_config.TextColumn(width=84),
            "Oracle": st.column_config.TextColumn(width=84),
            "User": st.column_config.TextColumn(width=84),
            "Votes": st.column_config.TextColumn(help="Valid, not valid, unjudged"),
            "Why unjudged": st.column_config.TextColumn(width="medium"),
        },
        alt="Correct answers with the verdicts of judge, oracle and users",
    )
    with st.container(horizontal=True, gap="small"):
        exports.show(frame, "verdicts")
        if len(rows) >= judging.VERDICTS_PAGE_SIZE * pages.get(page_key, 1) and st.button(
            "Show more", icon=":material/expand_more:", key="more-verdicts", type="tertiary"
        ):
            pages[page_key] = pages.get(page_key, 1) + 1
            st.rerun()


def table(rows: Sequence[JudgedRow]) -> pd.DataFrame:
    """Return the table of trajectories, one row each."""
    return pd.DataFrame(
        {
            "Id": [row.trajectory_id for row in rows],
            "Step": [row.step for row in rows],
            "Question": [row.question_index for row in rows],
            "Entropy": [row.mean_entropy for row in rows],
            "Code": [{True: "yes", False: "no", None: NONE_SHOWN}[row.has_code] for row in rows],
            "Judge": [VALIDITY[row.by_judge] for row in rows],
            "Votes": [_votes(row) for row in rows],
            "Oracle": [VALIDITY[row.oracle] for row in rows],
            "User": [VALIDITY[row.user] for row in rows],
            "Why unjudged": [escape_control_characters(row.reason) or None for row in rows],
        }
    )


def _choose(counts: Mapping[VerdictFilter, int]) -> VerdictFilter:
    wanted = st.query_params.get("which")
    chosen = VerdictFilter(wanted) if wanted in list(VerdictFilter) else VerdictFilter.ALL
    st.session_state["which"] = chosen
    st.segmented_control(
        "Which",
        list(VerdictFilter),
        format_func=lambda which: f"{_NAMES[which]} {_count(counts[which])}",
        key="which",
        on_change=lambda: address.put({"which": st.session_state["which"]}),
        required=True,
        label_visibility="collapsed",
    )
    return chosen


def _count(value: int) -> str:
    return f"{value:,}" if value <= MAX_COUNT else f"{MAX_COUNT:,}+"


def _votes(row: JudgedRow) -> str | None:
    counts = (row.num_valid, row.num_invalid, row.num_unjudged)
    return " / ".join(map(str, counts)) if any(counts) else None


def _why(which: VerdictFilter) -> str:
    return {
        VerdictFilter.ALL: "Judges read answer-correct responses, as in the paper.",
        VerdictFilter.JUDGED: "Start a judge under **Judges**.",
        VerdictFilter.UNJUDGED: "Every correct answer has a verdict.",
        VerdictFilter.DISPUTED: "No two verdicts on the same answer contradict each other.",
    }[which]


def _open(key: str, rows: Sequence[JudgedRow]) -> None:
    index = address_choice.clicked_row(key, len(rows))
    if index is not None:
        address.put({"trajectory": str(rows[index].trajectory_id)})
