"""One trajectory: its question, text, figures, verdict and marks, and all trajectories with a chosen mark."""

import math
from collections.abc import Callable, Sequence

import pandas as pd
import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.trajectories import (
    conversation_view,
    lineage_view,
    question_view,
    token_heatmap,
)
from exgrpo.app.components.widgets import address_choice, cases, copied_text, data_table, figures, notice, shown_text
from exgrpo.app.formats import NONE_SHOWN, VALIDITY, escape_control_characters, literal, nats, number
from exgrpo.app.queries.answers import ask
from exgrpo.app.settings import runs_root
from exgrpo.db.queries import judging, lineage, trajectories, trajectory_list
from exgrpo.db.queries.cases import sets_of_run
from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.db.rows.display_names import distinct_names, shorten
from exgrpo.db.rows.spec_fields import UNKNOWN
from exgrpo.db.rows.trajectories import (
    LineageRow,
    MarkedRow,
    MarkedTrajectory,
    TrajectoryFacets,
    TrajectoryOrder,
    TrajectoryRow,
    TrajectorySortKey,
)
from exgrpo.jobs.actions import annotations
from exgrpo.jobs.actions.token_texts import token_data
from exgrpo.jobs.evaluation.analysis.case_text import Excerpt
from exgrpo.jobs.evaluation.judging.items import JudgedItem
from exgrpo.jobs.evaluation.judging.oracles import judge_item

PARTS = ["Text", "Tokens", "Lineage", "Group", "Difference", "Question"]


def show(row: TrajectoryRow, previous: int | None, following: int | None) -> None:
    """Show the trajectory, with keys to its neighbours of the list; the part that is open is in the address."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(f"Trajectory {row.trajectory_id}", anchor=False, width="content")
        st.space("stretch")
        _export(row)
        _moves(previous, following)
        st.button(
            "Close", icon=":material/close:", key="close-trajectory", type="tertiary", on_click=address.put,
            args=({"trajectory": None},),
        )  # fmt: skip
    with st.container(horizontal=True, vertical_alignment="center", gap="xxsmall"):
        st.caption(
            f"Question {row.question_index} · generated in step {row.step:,}"
            + (" · cut at the length limit" if row.is_truncated else "")
            + ("" if row.verdict or (reward := number(row.reward)) == NONE_SHOWN else f" · reward {reward}"),
            width="content",
        )
        copied_text.show(f"{row.run_id} {row.trajectory_id}", "Copy the IDs of run and trajectory", "copied-trajectory")
    _show_validity(row)
    show_of(row)
    rows = ask(lineage.lineage, row.run_id, row.trajectory_id, row.question_index, row.step)
    _tiles(row, rows)
    views: list[Callable[[TrajectoryRow, list[LineageRow]], None]] = [
        _text, _tokens, lineage_view.show, question_view.show_group, question_view.show_difference, question_view.show,
    ]  # fmt: skip
    name, tab = address_choice.tabs(PARTS, address_choice.PART)
    with tab:
        dict(zip(PARTS, views, strict=True))[name](row, rows)


def _export(row: TrajectoryRow) -> None:
    question = ask(lineage.get_question, row.run_id, row.question_index)
    origin = f"Run {row.run_id}, step {row.step:,}, question {row.question_index}, {row.verdict or 'no verdict'}."
    asked = [("Prompt", question.prompt_text), ("Gold answer", question.answer)] if question else []
    texts = tuple((heading, text) for heading, text in [*asked, ("Response", row.text)] if text)
    title = f"Trajectory {row.trajectory_id}"
    shown_text.export_for_paper(title, [Excerpt(title, origin, texts)], f"trajectory-{row.trajectory_id}")


def _moves(previous: int | None, following: int | None) -> None:
    """Show the buttons that have keys; table.js leaves j and k to them."""
    for name, key, other in (("Previous", "k", previous), ("Next", "j", following)):
        st.button(
            name, key=f"{name.lower()}-trajectory", shortcut=key, type="tertiary", disabled=other is None,
            on_click=address.put, args=({"trajectory": str(other)},),
        )  # fmt: skip
    part = None if st.query_params.get(address_choice.PART) == "Group" else "Group"
    st.button(
        "Group", key="to-group", shortcut="g", type="tertiary", on_click=address.put,
        args=({address_choice.PART: part},),
    )  # fmt: skip


def _last_mark() -> str:
    return str(st.session_state.get("last-mark", "look again"))


def _toggle_mark(row: TrajectoryRow) -> None:
    marked = MarkedTrajectory(row.run_id, row.attempt, row.trajectory_id, _last_mark())
    known = {mark.mark for mark in ask(trajectories.marks_of, row.run_id, row.attempt, row.trajectory_id)}
    with notice.refusals("Not marked"):
        annotations.mark_trajectory(runs_root(), marked, is_kept=marked.mark not in known)
        st.toast(_SAVED, icon=":material/check:")


def _tiles(row: TrajectoryRow, rows: list[LineageRow]) -> None:
    replays = [entry for entry in rows if entry.kind == "replayed"]
    last = replays[-1] if replays else None
    times = f"last in step {last.step:,}" if last else "never"
    tiles = [
        ("Verdict", row.verdict or NONE_SHOWN, f"reward {number(row.reward)}"),
        ("Length", f"{row.num_tokens:,}" if row.num_tokens else UNKNOWN, "tokens"),
        ("Entropy", nats(row.mean_entropy), f"when last replayed {nats(last.entropy)}" if last else "nats per token"),
        ("NLL", nats(-row.mean_log_prob), f"when last replayed {nats(last.nll)}" if last else "nats per token"),
        ("Advantage", number(row.advantage), f"in step {row.step:,}"),
        ("Replays", f"{len(replays):,}" if row.num_tokens else UNKNOWN, times),
    ]
    if known := [tile for tile in tiles if tile[1] not in {NONE_SHOWN, UNKNOWN}]:
        figures.show_tiles(known)
    if row.extra:
        st.caption(" · ".join(f"{literal(name)}: {literal(str(value))}" for name, value in row.extra.items()))


def _text(row: TrajectoryRow, _rows: list[LineageRow]) -> None:
    question = ask(lineage.get_question, row.run_id, row.question_index)
    if row.num_turns is not None:
        if question and question.answer:
            shown_text.show_raw(question.answer, "Gold answer")
        conversation_view.show(row, ask(trajectories.messages_of, row.run_id, row.trajectory_id))
        return
    left, right = st.columns([2, 3], gap="medium")
    with left:
        shown_text.show_raw(question.prompt_text if question else None, "Prompt")
        shown_text.show_raw(question.answer if question else None, "Gold answer")
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
    data = token_data(runs_root(), row.run_id, file, row.trajectory_id, replayed_in=step) if file else None
    values = token_heatmap.from_recorded(data)
    if values is None:
        notice.show_empty(
            "token",
            "Tokens were not stored",
            "The tokens of this trajectory were not recorded, or the file was deleted. A training run keeps the tokens "
            "of all replayed trajectories. The setting `recording.token_data` says which others it keeps.",
        )
    else:
        token_heatmap.show(values, f"{row.trajectory_id}-{chosen}")


REFRESH_SECONDS = 3
_ADDRESS = "marked"
_SAVED = "Saved"


def show_of(row: TrajectoryRow) -> None:
    """Show the marks of a trajectory, each removed by a click, and a form that adds one."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        _form(row)
        _show_keep(row)
        st.button(
            f"Mark: {literal(_last_mark())}", key="quick-mark", shortcut="m", type="tertiary", on_click=_toggle_mark,
            args=(row,), help="Adds or removes the last mark that you used",
        )  # fmt: skip
        _show_marks(row)


def choose() -> str | None:
    """Show a choice of marks, where there are any, and return the chosen one, which is in the address."""
    counts = {count.mark: count for count in ask(trajectories.list_marks)}
    if not counts:
        return None
    wanted = st.query_params.get(_ADDRESS)
    chosen = wanted if wanted in counts else None
    st.selectbox(
        "Marked trajectories", list(counts), index=None, placeholder="Marked trajectories",
        format_func=lambda name: f"{escape_control_characters(name)} ({counts[name].num_trajectories:,})",
        label_visibility="collapsed", width=240, **address_choice.bound(_ADDRESS, chosen, "mark-choice"),
    )  # fmt: skip
    return chosen


def show_marked(mark: str) -> None:
    """Show the trajectories of all runs that have a mark, each row with a link to its trajectory."""
    rows = ask(trajectories.marked_trajectories, mark)
    with st.container(border=True, key="marked", gap="small"):
        st.markdown(f"**Marked: {literal(mark)}**")
        if not rows:
            notice.show_empty("bookmark", "No trajectory has this mark", "Open a trajectory and mark it.")
            return
        data_table.export_above(_files(rows), "marked-trajectories")
        picked = data_table.pick(
            _table(rows), f"marked-{mark}", "Trajectories that have the mark",
            [f"{row.marked.run_id} {row.marked.trajectory_id}" for row in rows],
        )  # fmt: skip
    if picked is not None and rows[picked].step is not None:
        marked = rows[picked].marked
        address_choice.open_trajectory(marked.run_id, marked.trajectory_id)


def _form(row: TrajectoryRow) -> None:
    with (
        st.popover("Mark", icon=":material/bookmark_add:", key="mark-menu"),
        st.form("mark-form", border=False, enter_to_submit=False),
    ):
        name = st.text_input("Mark", key="mark-name", placeholder="e.g. odd reasoning", max_chars=60)
        comment = st.text_area("Comment", key="mark-comment", height=90)
        is_sent = st.form_submit_button("Save", key="keep-mark")
        if is_sent:
            with notice.refusals("Not marked"):
                annotations.mark_trajectory(
                    runs_root(), MarkedTrajectory(row.run_id, row.attempt, row.trajectory_id, name, comment)
                )
                st.session_state["last-mark"] = name
                st.toast(_SAVED, icon=":material/check:")


@st.fragment(run_every=REFRESH_SECONDS)
def _show_marks(row: TrajectoryRow) -> None:
    with st.container(horizontal=True, gap="small"):
        for mark in ask(trajectories.marks_of, row.run_id, row.attempt, row.trajectory_id):
            if st.button(
                literal(mark.mark),
                icon=":material/bookmark:",
                key=f"unmark-{mark.mark}",
                help=f"{literal(mark.comment) or 'No comment'}. Click to remove the mark.",
            ):
                _remove(mark)


def _remove(mark: MarkedTrajectory) -> None:
    with notice.refusals("Not removed"):
        annotations.mark_trajectory(runs_root(), mark, is_kept=False)
        st.toast(_SAVED, icon=":material/check:")


def _table(rows: Sequence[MarkedRow]) -> pd.DataFrame:
    names = distinct_names({row.marked.run_id: row.run_name for row in rows}.items())
    return pd.DataFrame(
        {
            "Trajectory": [row.marked.trajectory_id for row in rows],
            "Run": [escape_control_characters(names[row.marked.run_id]) for row in rows],
            "Step": [row.step for row in rows],
            "Comment": [escape_control_characters(row.marked.comment) for row in rows],
            "Reward": [row.reward for row in rows],
            "Entropy": [round(row.mean_entropy, 4) for row in rows],
            "Tokens": [row.num_tokens or None for row in rows],
            "Prompt": [escape_control_characters(shorten(row.prompt_text or row.text)) for row in rows],
        }
    )


def _files(rows: Sequence[MarkedRow]) -> pd.DataFrame:
    """Return what a downloaded file holds: the table's values with whole texts."""
    frame = _table(rows)
    frame["Run id"] = [row.marked.run_id for row in rows]
    frame["Question"] = [row.question_index for row in rows]
    frame["Prompt"] = [row.prompt_text for row in rows]
    frame["Gold answer"] = [row.answer for row in rows]
    frame["Response"] = [row.text for row in rows]
    return frame


_MAX_OTHERS = 200


def _show_validity(row: TrajectoryRow) -> None:
    """Show whether its reasoning is valid, by a user, the oracle or the newest judge's votes, and what is wrong."""
    judged = ask(judging.get_verdicts, row.run_id, row.trajectory_id)
    by_user = None if judged is None else judged.user
    is_valid, why = (row.is_valid if by_user is None else by_user), ""
    if is_valid is None:
        votes = ask(judging.list_votes, row.run_id, row.trajectory_id)
        if not votes:
            return
        newest = [vote for vote in votes if vote.judge_run_id == votes[0].judge_run_id]
        judged = ask(judging.get_verdicts, row.run_id, row.trajectory_id, votes[0].judge_run_id)
        is_valid = None if judged is None else judged.by_judge
        issues = dict.fromkeys(issue for vote in newest for issue in vote.issues)
        why = f"by {votes[0].judge}" + (f", which names: {', '.join(issues)}" if issues else "")
    elif (
        is_valid is False
        and row.is_valid is False
        and (question := ask(lineage.get_question, row.run_id, row.question_index))
    ):
        problem = question.details.get("question") or question.prompt_text
        why = judge_item(JudgedItem("", problem, row.text, details={**question.details})).fault
    with st.container(horizontal=True, vertical_alignment="center", gap="small", key="validity"):
        st.caption("Chain of thought", width="content")
        cases.verdict_badge(is_valid)
        st.caption(literal(why + ("; by you" if why and by_user is not None else "")))


def _show_keep(row: TrajectoryRow) -> None:
    """Show the menu that keeps it as a case next to another correct answer to its question, or as a case of one."""
    menu = st.popover("Keep as a case", icon=":material/bookmark_add:", key="case-menu", on_change="rerun")
    if not menu.open:
        return
    correct = TrajectoryFacets(run_id=row.run_id, question_index=row.question_index, is_correct=True)
    # The other end of a snowball case: the most certain one next to one that is not valid, else the least certain.
    order = TrajectoryOrder(TrajectorySortKey.ENTROPY, is_descending=row.is_valid is not False)
    others = {
        other.trajectory_id: other
        for other in ask(trajectory_list.list_snippets, correct, limit=_MAX_OTHERS, order=order)
        if other.attempt == row.attempt and other.trajectory_id != row.trajectory_id
    }
    opposite = (number for number, other in others.items() if {row.is_valid, other.is_valid} == {True, False})
    numbers = [row.trajectory_id, *others]
    usual = next(opposite, numbers[min(1, len(others))])
    with menu:
        chosen = st.selectbox(
            "Next to", numbers, index=numbers.index(usual), key=f"case-with-{row.trajectory_id}",
            format_func=lambda number: _words(others[number]) if number in others else "no other",
            help="Another correct answer to the same question",
        )  # fmt: skip
        ends = sorted((row, others.get(chosen, row)), key=_entropy)
        saved = SavedCase(row.run_id, row.attempt, ends[0].trajectory_id, ends[1].trajectory_id)
        cases.show_keep(saved, ask(sets_of_run, row.run_id).get(saved, ()), "of-trajectory")


def _entropy(row: TrajectoryRow) -> tuple[float, int]:
    """Return by what the ends of a case are ordered: the entropy, without one the id."""
    has_none = row.mean_entropy is None or math.isnan(row.mean_entropy)
    return 0.0 if has_none else row.mean_entropy, row.trajectory_id


def _words(other: TrajectoryRow) -> str:
    return f"{other.trajectory_id}, step {other.step:,}, {nats(other.mean_entropy)} nats, {VALIDITY[other.is_valid]}"
