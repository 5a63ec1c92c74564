"""The questions of the trajectories that match, one row each: how often a run solved and replayed them."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.trajectories import trajectory_search
from exgrpo.app.components.widgets import data_table, grid, long_lists, notice
from exgrpo.app.formats import counted, escape_control_characters
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import trajectory_list
from exgrpo.db.rows.trajectories import (
    MOST_REPLAYED,
    QuestionCountRow,
    QuestionOrder,
    QuestionSortKey,
    TrajectoryFacets,
)


def show(where: TrajectoryFacets, *, is_unsolved: bool) -> None:
    """Show the questions, most replayed first unless the address says otherwise; a click lists their trajectories.

    The questions of a run without replays are sorted by their numbers.
    """
    has_replays = where.run_id is not None and ask(trajectory_list.has_replays, where.run_id)
    left_out = [] if has_replays else ["Replays"]
    heads = {head: key for head, key in long_lists.heads(QuestionSortKey).items() if head not in left_out}
    order = long_lists.order_of_address(QuestionSortKey)
    if not has_replays and (order is None or order.key is QuestionSortKey.REPLAYS):
        order = _BY_NUMBER
    listed = (where, is_unsolved, order)

    def read(limit: int | None) -> list[QuestionCountRow]:
        sort = order or MOST_REPLAYED
        return ask(trajectory_list.list_questions, where, is_unsolved=is_unsolved, order=sort, limit=limit)

    most = long_lists.PAGE_SIZE * long_lists.num_pages(listed)
    rows = read(most)
    if not rows:
        notice.show_empty("filter_alt_off", "No question matches", "Choose another list, or clear the filters.")
        return
    is_all = len(rows) < most
    num_rows = len(rows) if is_all else ask(trajectory_list.count_questions, where, is_unsolved=is_unsolved)
    told = f"{len(rows):,} of {counted(num_rows, 'question')}{'' if order else ', most replayed first'}"
    data_table.show_caption(
        told, lambda: _table(read(None)).drop(columns=left_out), "questions", formats=data_table.WHOLE_FORMATS
    )
    grid.draw(
        _table(rows).drop(columns=left_out), "questions-table",
        "Table of questions: steps, rollouts, correct ones, replays and prompt",
        _COLUMNS, 15,
        grid.Clicks([str(row.question_index) for row in rows], _open),
        long_lists.sorting(heads, order, listed, num_rows, "Replays"),
    )  # fmt: skip


_BY_NUMBER = QuestionOrder(QuestionSortKey.QUESTION, is_descending=False)
_NUMBER = st.column_config.NumberColumn
_COLUMNS = {
    "Steps": _NUMBER(help="Steps that generated responses to the question"),
    "Rollouts": _NUMBER(help="All responses that the run generated to the question, whatever the filters"),
    "Replays": _NUMBER(help="How often any of its trajectories was replayed"),
    "Prompt": st.column_config.TextColumn(width="large"),
}


def _open(question: str) -> None:
    st.session_state["question-index"] = int(question)
    address.put({trajectory_search.LIST: None, long_lists.ADDRESS: None})


def _table(rows: Sequence[QuestionCountRow]) -> pd.DataFrame:
    return pd.DataFrame(
        {
            "Question": [row.question_index for row in rows],
            "Steps": [row.num_steps for row in rows],
            "Rollouts": [row.num_rollouts for row in rows],
            "Correct": [row.num_correct for row in rows],
            "Replays": [row.num_replays for row in rows],
            "Last replayed": [row.last_replayed_step for row in rows],
            "Prompt": [escape_control_characters(row.prompt) for row in rows],
        }
    ).dropna(axis="columns", how="all")
