"""Whether a trajectory's reasoning is valid, which step is wrong, and the menu that keeps it as a snowball case."""

import math

import streamlit as st

from exgrpo.app.components.widgets import cases
from exgrpo.app.formats import VALIDITY, literal, nats
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries import judging, lineage, trajectory_list
from exgrpo.db.queries.cases import sets_of_run
from exgrpo.db.rows.chains_of_thought import SavedCase
from exgrpo.db.rows.trajectories import TrajectoryFacets, TrajectoryOrder, TrajectoryRow, TrajectorySortKey
from exgrpo.jobs.evaluation.judging.items import JudgedItem
from exgrpo.jobs.evaluation.judging.oracles import judge_item

_MAX_OTHERS = 200


def show_validity(row: TrajectoryRow) -> None:
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


def show_keep(row: TrajectoryRow) -> None:
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
