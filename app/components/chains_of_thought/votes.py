"""One correct answer beside its verdicts, with the judge's text and the user's verdict."""

import streamlit as st

from app import address, requests
from app.components.chains_of_thought import case_view
from app.components.widgets import notice, shown_text
from app.formats import escape_control_characters, nats
from app.queries.answers import ask
from db.queries import judging, lineage, trajectories
from db.rows.judging import JudgedRow, VoteRow

_TEXT_HEIGHT = 420
_CHOICES = {"valid": True, "not valid": False, "no verdict": None}


def show(row: JudgedRow) -> None:
    """Show text and verdicts side by side."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(f"Trajectory {row.trajectory_id}", anchor=False, width="content")
        for name, verdict in (("judge", row.by_judge), ("oracle", row.oracle), ("you", row.user)):
            if verdict is not None:
                st.caption(name, width="content")
                case_view.verdict_badge(verdict)
        st.space("stretch")
        if st.button("Open in Trajectories", icon=":material/open_in_new:", type="tertiary", key="open-trajectory"):
            query = {"run": row.run_id, "trajectory": str(row.trajectory_id)}
            st.switch_page("app_pages/trajectories.py", query_params=query)
        st.button("Close", icon=":material/close:", key="close-verdict", on_click=_close, type="tertiary")
    st.caption(f"Question {row.question_index:,}, step {row.step:,}, entropy {nats(row.mean_entropy)} nats per token")
    left, right = st.columns(2, gap="medium")
    with left:
        _text(row)
    with right:
        _override(row)
        votes = ask(judging.list_votes, row.run_id, row.trajectory_id)
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
    try:
        requests.set_verdict(row.run_id, row.attempt, row.trajectory_id, _CHOICES[chosen])
    except requests.CommandError as error:
        notice.show("error", "Not saved", str(error))
        return
    st.toast("Verdict saved", icon=":material/check:")


def _vote(vote: VoteRow) -> None:
    with st.container(border=True, gap="xsmall", key=f"vote-{vote.judge_run_id}-{vote.item_id}-{vote.vote}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.text(escape_control_characters(f"{vote.judge}, vote {vote.vote + 1}"), width="content")
            case_view.verdict_badge({"valid": True, "invalid": False}.get(vote.outcome))
        facts = [f"prompt {vote.prompt}", f"{vote.num_tokens:,} tokens", *vote.issues]
        st.text(escape_control_characters(" \N{MIDDLE DOT} ".join([*facts, vote.reason] if vote.reason else facts)))
        if vote.answer:
            with st.expander("The judge's words", key=f"words-{vote.judge_run_id}-{vote.item_id}-{vote.vote}"):
                shown_text.show_raw(vote.answer)


def _close() -> None:
    address.put({"trajectory": None})
