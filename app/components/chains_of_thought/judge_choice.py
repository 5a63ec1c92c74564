"""Whose verdicts a page shows: the task's oracle or a judge's job, kept in the address."""

import streamlit as st

from app import address
from app.formats import escape_control_characters
from app.queries.answers import ask
from db.queries import judge_work, runs
from db.rows.display_names import id_end
from db.rows.runs import RunRow
from db.rows.verdicts import JudgeJobRow

ORACLE = "oracle"
ORACLE_SOURCES = ("chains", "word_problems")


def show(row: RunRow) -> str | None:
    """Show the choice and return the judge's job, None for the oracle; a run without a judge has the oracle's column.

    The oracle comes first where the task has one, else the newest judge that voted.
    """
    jobs = {job.judge_run_id: job for job in ask(judge_work.list_judge_jobs, row.run_id) if job.num_votes}
    names = ([ORACLE] if has_oracle(row.run_id) or not jobs else []) + list(jobs)
    wanted = st.query_params.get("judge")
    chosen = wanted if wanted in names else names[0]
    key = f"judge-choice-{row.run_id}"
    st.session_state[key] = chosen
    st.selectbox(
        "Verdicts by",
        names,
        format_func=lambda name: escape_control_characters(_label(name, jobs, row.run_id)),
        key=key,
        on_change=_choose,
        args=(key,),
        label_visibility="collapsed",
        width=170,
    )
    return None if chosen == ORACLE else chosen


def has_oracle(run_id: str) -> bool:
    """Return whether the run's task has an oracle."""
    return bool(ask(runs.run_spec, run_id).get("data", {}).get("source") in ORACLE_SOURCES)


def _label(name: str, jobs: dict[str, JudgeJobRow], run_id: str) -> str:
    if name == ORACLE:
        return "Verdicts: oracle" if has_oracle(run_id) else "Verdicts: none yet"
    return f"{jobs[name].judge.rpartition('/')[2]} {id_end(name)}"


def _choose(key: str) -> None:
    address.put({"judge": st.session_state[key]})
