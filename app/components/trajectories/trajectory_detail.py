"""One trajectory: its question, text and figures, and parts with more detail."""

from collections.abc import Callable

import streamlit as st

from app import address, requests
from app.components.trajectories import lineage_view, question_view, token_heatmap, trajectory_marks
from app.components.widgets import data_table, empty_state, shown_text
from app.formats import NONE_SHOWN, nats, number, token_count
from app.queries.answers import ask
from db.queries import lineage, trajectories
from db.rows.runs import TrajectoryRow
from db.rows.trajectories import LineageRow

PARTS = ["Text", "Tokens", "Lineage", "Group", "Question"]


def show(row: TrajectoryRow) -> None:
    """Show the trajectory; the part that is open is in the address."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader(f"Trajectory {row.trajectory_id}", anchor=False)
        st.button("Close", icon=":material/close:", key="close-trajectory", on_click=_close, type="tertiary")
    st.caption(
        f"Question {row.question_index:,} · generated in step {row.step:,}"
        + (" · superseded by a later attempt" if row.is_superseded else "")
        + (" · cut at the length limit" if row.is_truncated else "")
    )
    trajectory_marks.show_of(row)
    rows = ask(lineage.lineage, row.run_id, row.trajectory_id, row.question_index, row.step)
    _tiles(row, rows)
    views: list[Callable[[TrajectoryRow, list[LineageRow]], None]] = [
        _text, _tokens, lineage_view.show, question_view.show_group, question_view.show,
    ]  # fmt: skip
    tabs = st.tabs(PARTS, key="part", bind="query-params", on_change="rerun")
    for tab, view in zip(tabs, views, strict=True):
        if tab.open:
            with tab:
                view(row, rows)


def _tiles(row: TrajectoryRow, rows: list[LineageRow]) -> None:
    replays = [entry for entry in rows if entry.kind == "replayed"]
    last = replays[-1] if replays else None
    figures = (
        ("Verdict", row.verdict or NONE_SHOWN, f"reward {number(row.reward)}"),
        ("Length", token_count(row.num_tokens), "tokens"),
        ("Entropy", nats(row.mean_entropy), f"last {nats(last.entropy)}" if last else "nats per token"),
        ("NLL", nats(-row.mean_log_prob), f"last {nats(last.nll)}" if last else "nats per token"),
        ("Advantage", number(row.advantage), f"step {row.step:,}"),
        ("Replays", f"{len(replays):,}", f"step {last.step:,}" if last else "never"),
    )
    data_table.show_tiles(figures)


def _text(row: TrajectoryRow, _rows: list[LineageRow]) -> None:
    question = ask(lineage.get_question, row.run_id, row.question_index)
    left, right = st.columns([2, 3], gap="medium")
    with left:
        shown_text.show_raw(question.prompt_text if question else None, "Prompt")
        shown_text.show_raw(question.answer if question else None, "Reference answer")
    with right:
        with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
            st.markdown("**Response**", width="content")
            is_rendered = st.toggle("Render mathematics", key="mathematics", bind="query-params")
        if is_rendered and row.text:
            shown_text.show_mathematics(shown_text.beginning(row.text))
            shown_text.show_bound(len(row.text))
        else:
            shown_text.show_long(row.text)


def _tokens(row: TrajectoryRow, rows: list[LineageRow]) -> None:
    replays = {entry.step: entry for entry in rows if entry.kind == "replayed"}
    chosen = 0
    if replays:
        chosen = st.selectbox(
            "Under the policy", [0, *replays], key="under", bind="query-params", width=260,
            format_func=lambda step: f"replayed in step {step}" if step else "at rollout",
        )  # fmt: skip
    entry = replays.get(chosen)
    file = ask(trajectories.find_trajectory_file, row.run_id, row.trajectory_id) if entry is None else entry.file
    step = chosen or None
    data = requests.token_data(row.run_id, file, row.trajectory_id, replayed_in=step) if file else None
    values = token_heatmap.from_recorded(data)
    if values is None:
        empty_state.show(
            "token",
            "Tokens were not stored",
            "The run's setting recording.token_data leaves out the tokens of trajectories like this one, or the file "
            "is gone. Replayed ones always keep theirs.",
        )
    else:
        token_heatmap.show(values, f"{row.trajectory_id}-{chosen}")


def _close() -> None:
    address.put({"trajectory": None})
