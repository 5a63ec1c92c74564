"""Verdicts on correct answers: whose they are, the list of them, and one answer next to all its verdicts."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.chains_of_thought import judges
from exgrpo.app.components.widgets import (
    address_choice,
    cases,
    data_table,
    figures,
    grid,
    long_lists,
    notice,
    shown_text,
)
from exgrpo.app.formats import NONE_SHOWN, VALIDITY, counted, escape_control_characters, nats, share
from exgrpo.app.queries.answers import ask
from exgrpo.app.settings import runs_root
from exgrpo.db.queries import judging, lineage, runs, trajectories
from exgrpo.db.rows.chains_of_thought import ALL, CodeLine
from exgrpo.db.rows.judging import JudgedRow, JudgedSortKey, JudgeRow, VerdictFilter, VoteRow
from exgrpo.db.rows.runs import RunRow
from exgrpo.db.statistics import wilson
from exgrpo.jobs.actions import annotations
from exgrpo.jobs.evaluation.judging.calibration import Calibration, correct_rate
from exgrpo.jobs.specs.train import ORACLE_SOURCES
from exgrpo_core.recording.rows import VoteOutcome
from exgrpo_core.recording.run_folder import id_end

ORACLE = "oracle"


def choose_judge(row: RunRow) -> str | None:
    """Show the choice and return the judge's job, None for the oracle; a run without a judge has the oracle's column.

    The oracle comes first where the task has one, else the newest judge that voted.
    """
    jobs = {job.judge_run_id: job for job in ask(judging.list_judges, row.run_id) if job.num_votes}
    names = ([ORACLE] if has_oracle(row.run_id) or not jobs else []) + list(jobs)
    wanted = st.query_params.get("judge")
    chosen = wanted if wanted in names else names[0]
    st.selectbox(
        "Verdicts by", names, format_func=lambda name: escape_control_characters(_label(name, jobs, row.run_id)),
        label_visibility="collapsed", **address_choice.bound("judge", chosen, f"judge-choice-{row.run_id}"),
    )  # fmt: skip
    return None if chosen == ORACLE else chosen


def has_oracle(run_id: str) -> bool:
    """Return whether the run's task has an oracle."""
    return bool(ask(runs.run_spec, run_id).get("data", {}).get("source") in ORACLE_SOURCES)


def _label(name: str, jobs: dict[str, JudgeRow], run_id: str) -> str:
    if name == ORACLE:
        return "Verdicts: oracle" if has_oracle(run_id) else "Verdicts: none yet"
    return f"{jobs[name].judge.rpartition('/')[2]} {id_end(name)}"


def show_tiles(lines: Sequence[CodeLine], calibration: Calibration | None, *, is_oracle: bool) -> None:
    """Show how many answers are judged, the share of valid ones, and the corrected share."""
    all_lines = [line for line in lines if line.group == ALL]
    num_all, num_judged = sum(line.num_trajectories for line in all_lines), sum(line.num_judged for line in all_lines)
    num_valid = sum(round(line.cot_correctness * line.num_judged) for line in all_lines if line.num_judged)
    rate = wilson(num_valid, num_judged)
    tiles = [
        ("Correct answers", f"{num_all:,}", "fresh rollouts"),
        ("Judged", f"{num_judged:,}", share(num_judged / num_all) if num_all else NONE_SHOWN),
        ("Valid chains", share(rate.value), judges.interval(rate) if num_judged else "no verdict yet"),
        ("Corrected", *_corrected(all_lines, calibration, is_oracle=is_oracle)),
    ]
    figures.show_tiles(tiles)


def _corrected(lines: Sequence[CodeLine], calibration: Calibration | None, *, is_oracle: bool) -> tuple[str, str]:
    if is_oracle:
        return NONE_SHOWN, "the oracle is exact"
    if calibration is None:
        return NONE_SHOWN, "judge not calibrated"
    num_valid, num_judged = sum(line.num_valid_by_judge for line in lines), sum(line.num_by_judge for line in lines)
    rate = correct_rate(num_valid, num_judged, calibration)
    if not rate.is_informative:
        return NONE_SHOWN, "judge no better than chance"
    return share(rate.value), judges.interval(rate)


def show_list(run_id: str, judge_run_id: str | None, opened: int | None) -> None:
    """Show the choice, which is in the address, and the list; a click writes the trajectory into the address."""
    counts = ask(judging.count_verdicts, run_id, judge_run_id)
    which = _choose_filter(counts)
    order = long_lists.order_of_address(JudgedSortKey)
    listed = run_id, judge_run_id, which, order
    most = long_lists.PAGE_SIZE * long_lists.num_pages(listed)
    rows = ask(judging.list_verdicts, run_id, judge_run_id, which, limit=most, order=order)
    if not rows:
        title = "No correct answer yet" if which is VerdictFilter.ALL else f"None {which}"
        notice.show_empty("gavel", title, _WHY_NONE[which])
        return
    frame = verdict_table(rows)
    if judge_run_id is None:
        frame = frame.drop(columns=["Judge", "Votes", "Why unjudged"])  # these columns describe judges only
    columns = {
        "Entropy": st.column_config.NumberColumn(format="%.4f", help="Mean token entropy at rollout, nats"),
        **dict.fromkeys(("Judge", "Oracle", "User"), st.column_config.TextColumn(width=84)),
        "Votes": st.column_config.TextColumn(help="Valid, not valid, unjudged"),
        "Why unjudged": st.column_config.TextColumn(width="medium"),
    }
    clicks = grid.Clicks(
        [str(row.trajectory_id) for row in rows], lambda trajectory: address.put({"trajectory": trajectory}),
        None if opened is None else str(opened),
    )  # fmt: skip
    alt = "Correct answers with the verdicts of judge, oracle and users"
    num_rows = max(len(rows), counts[which])
    sorting = long_lists.sorting(long_lists.heads(JudgedSortKey), order, listed, num_rows)
    data_table.export_above(
        lambda: verdict_table(ask(judging.list_verdicts, run_id, judge_run_id, which, limit=None, order=order)).assign(
            **{"Run id": run_id, "Judge run": judge_run_id}
        ),
        "verdicts", formats=data_table.WHOLE_FORMATS,
    )  # fmt: skip
    grid.draw(frame, "verdicts", alt, columns, 14 if opened is None else 6, clicks, sorting)


def verdict_table(rows: Sequence[JudgedRow]) -> pd.DataFrame:
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


def _choose_filter(counts: Mapping[VerdictFilter, int]) -> VerdictFilter:
    wanted = st.query_params.get("which")
    chosen = VerdictFilter(wanted) if wanted in list(VerdictFilter) else VerdictFilter.ALL
    st.segmented_control(
        "Which", list(VerdictFilter), format_func=lambda which: f"{which.capitalize()} ({counts[which]:,})",
        required=True, label_visibility="collapsed", **address_choice.bound("which", chosen, "which"),
    )  # fmt: skip
    return chosen


def _votes(row: JudgedRow) -> str | None:
    counts = (row.num_valid, row.num_invalid, row.num_unjudged)
    return " / ".join(map(str, counts)) if any(counts) else None


_WHY_NONE = {
    VerdictFilter.ALL: "Judges read answer-correct responses, as in the paper.",
    VerdictFilter.JUDGED: "Start a judge under **Judges**.",
    VerdictFilter.UNJUDGED: "Every correct answer has a verdict.",
    VerdictFilter.DISPUTED: "No two verdicts on the same answer contradict each other.",
}
_TEXT_HEIGHT = 420
_CHOICES = {"valid": True, "not valid": False, "no verdict": None}


def show(row: JudgedRow) -> None:
    """Show text and verdicts side by side."""
    votes = ask(judging.list_votes, row.run_id, row.trajectory_id)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(f"Trajectory {row.trajectory_id}", anchor=False, width="content")
        for name, verdict in (("judge", row.by_judge), ("oracle", row.oracle), ("you", row.user)):
            # What a person says counts as every judge's verdict in the tables; here it is theirs alone.
            if verdict is not None and (votes or name != "judge"):
                st.caption(name, width="content")
                cases.verdict_badge(verdict)
        st.space("stretch")
        if st.button("Open in Trajectories", icon=":material/open_in_new:", type="tertiary", key="open-trajectory"):
            address_choice.open_trajectory(row.run_id, row.trajectory_id)
        st.button(
            "Close", icon=":material/close:", key="close-verdict", type="tertiary", on_click=address.put,
            args=({"trajectory": None},),
        )  # fmt: skip
    st.caption(f"Question {row.question_index}, step {row.step:,}, entropy {nats(row.mean_entropy)} nats per token")
    left, right = st.columns(2, gap="medium")
    with left:
        _text(row)
    with right:
        _override(row)
        if not votes:
            st.caption("No judge has voted on it.")
        for vote in votes:
            _vote(vote)


def _text(row: JudgedRow) -> None:
    trajectory = ask(trajectories.get_trajectory, row.run_id, row.trajectory_id)
    question = ask(lineage.get_question, row.run_id, row.question_index)
    shown_text.show_raw(question.prompt_text if question else None, "Prompt")
    st.markdown("**Response**")
    with st.container(height=_TEXT_HEIGHT, border=False):
        shown_text.show_raw(trajectory.text if trajectory else None)


def _override(row: JudgedRow) -> None:
    names = {value: name for name, value in _CHOICES.items()}
    key = f"override-{row.run_id}-{row.attempt}-{row.trajectory_id}"
    with st.container(border=True, key="override"):
        st.segmented_control(
            "Your verdict", list(_CHOICES), default=names[row.user], key=key, required=True, on_change=_set,
            args=(row, key), help="It replaces every judge's verdict in all tables; judges are compared with it",
        )  # fmt: skip


def _set(row: JudgedRow, key: str) -> None:
    chosen = st.session_state.get(key)
    if chosen is None:
        return
    with notice.refusals("Not saved"):
        annotations.set_verdict(runs_root(), row.run_id, row.attempt, row.trajectory_id, _CHOICES[chosen])
        st.toast("Verdict saved", icon=":material/check:")


def _vote(vote: VoteRow) -> None:
    with st.container(border=True, gap="xsmall", key=f"vote-{vote.judge_run_id}-{vote.item_id}-{vote.vote}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(escape_control_characters(f"{vote.judge}, vote {vote.vote + 1}"), width="content")
            cases.verdict_badge({VoteOutcome.VALID: True, VoteOutcome.INVALID: False}.get(vote.outcome))
        facts = [f"prompt {vote.prompt}", counted(vote.num_tokens, "token"), *vote.issues]
        st.text(escape_control_characters(" \N{MIDDLE DOT} ".join([*facts, vote.reason] if vote.reason else facts)))
        if vote.answer:
            with st.expander("The judge's words", key=f"words-{vote.judge_run_id}-{vote.item_id}-{vote.vote}"):
                shown_text.show_raw(vote.answer)
