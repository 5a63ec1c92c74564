"""Judges' jobs on a run with progress and cost, prompt versions, and the results of their votes."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import requests
from app.components.chains_of_thought import thought_statistics
from app.components.widgets import empty_state, exports, status_badge
from app.formats import NONE_SHOWN, ago, escape_control_characters, number
from db.rows.display_names import id_end
from db.rows.judging import JudgeRow
from db.rows.verdicts import JudgeJobRow

_COUNTS = ("Jobs", "Responses", "Valid", "Not valid", "Unjudged", "Tokens")


def show(jobs: Sequence[JudgeJobRow]) -> None:
    """Show one row per job; a click opens it as a run."""
    if not jobs:
        empty_state.show("gavel", "No judge jobs yet", "Start one below; the paper's judge is Qwen3-32B.")
        return
    frame = table(jobs)
    event = st.dataframe(
        frame,
        key=f"judge-jobs-{len(jobs)}",
        hide_index=True,
        placeholder=NONE_SHOWN,
        column_config={
            "Progress": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, width=110),
            "Votes": st.column_config.TextColumn(help="Recorded, of those the job is for"),
            "Requests": st.column_config.TextColumn(help="Retries counted; of the spend cap where there is one"),
            "Tokens": st.column_config.TextColumn(help="Prompt and answer; of the spend cap where there is one"),
        },
        on_select="rerun",
        selection_mode="single-cell",
        alt="Jobs of judges with state, progress, votes, requests and tokens",
    )
    exports.show(frame, "judge-jobs")
    for job in jobs:
        if job.status in {"failed", "lost"} and job.status_reason:
            st.text(escape_control_characters(f"{id_end(job.judge_run_id)}: {job.status_reason}"))
    cells = event.selection.cells
    if cells and cells[0][0] < len(jobs):
        st.switch_page("app_pages/run.py", query_params={"run": jobs[cells[0][0]].judge_run_id})


def table(jobs: Sequence[JudgeJobRow]) -> pd.DataFrame:
    """Return the jobs as a table, newest first."""
    plans = [_planned(job) for job in jobs]
    return pd.DataFrame(
        {
            "Job": [id_end(job.judge_run_id) for job in jobs],
            "State": [status_badge.state_name(job.status) for job in jobs],
            "Judge": [escape_control_characters(job.judge) for job in jobs],
            "Prompt": [escape_control_characters(job.prompt) or None for job in jobs],
            "Progress": [_fraction(job, plan) for job, plan in zip(jobs, plans, strict=True)],
            "Votes": [_of(job.num_votes, plan) for job, plan in zip(jobs, plans, strict=True)],
            "Unjudged": [job.num_unjudged_votes for job in jobs],
            "Requests": [_of(job.num_requests, job.max_requests) for job in jobs],
            "Tokens": [_of(job.num_tokens, job.max_total_tokens) for job in jobs],
            "Created": [ago(job.created_at) for job in jobs],
        }
    )


def show_prompts(rows: Sequence[JudgeRow]) -> None:
    """Show which judge voted with which version of the prompt, and the words of the newest version."""
    st.markdown("**Prompt versions**")
    if rows:
        frame = prompt_table(rows)
        st.dataframe(
            frame, hide_index=True, key="prompt-versions", placeholder=NONE_SHOWN,
            column_config={name: st.column_config.NumberColumn(format="localized") for name in _COUNTS},
            alt="Judges and prompt versions with the number of jobs, responses and tokens",
        )  # fmt: skip
        exports.show(frame, "judge-prompts")
    prompt = thought_statistics.load_judge_prompt()
    with st.expander(f"Full text of {prompt.version_name}", icon=":material/description:", key="prompt-words"):
        st.caption(prompt.source)
        st.caption("The workbench puts this guard before the paper's prompt:")
        st.code(escape_control_characters(prompt.guard), language=None, wrap_lines=True)
        st.code(escape_control_characters(prompt.template), language=None, wrap_lines=True)


def prompt_table(rows: Sequence[JudgeRow]) -> pd.DataFrame:
    """Return one row for each judge and prompt over all runs of the workbench."""
    by_prompt: dict[tuple[str, str], list[JudgeRow]] = {}
    for row in rows:
        by_prompt.setdefault((row.prompt, row.judge), []).append(row)
    sums = [[sum(getattr(row, name) for row in members) for members in by_prompt.values()] for name in
            ("num_responses", "num_valid", "num_invalid", "num_unjudged", "num_tokens")]  # fmt: skip
    return pd.DataFrame(
        {
            "Prompt": [escape_control_characters(prompt) for prompt, _ in by_prompt],
            "Judge": [escape_control_characters(judge) for _, judge in by_prompt],
            "Jobs": [len({row.judge_run_id for row in members}) for members in by_prompt.values()],
            "Responses": sums[0],
            "Valid": sums[1],
            "Not valid": sums[2],
            "Unjudged": sums[3],
            "Tokens": sums[4],
        }
    )


def _planned(job: JudgeJobRow) -> int | None:
    progress = requests.job_progress(job.judge_run_id)
    return progress[1] if progress else None


def _fraction(job: JudgeJobRow, plan: int | None) -> float:
    if job.status == "finished":
        return 1.0
    return min(1.0, job.num_votes / plan) if plan else 0.0


def _of(count: int, most: int | None) -> str:
    return number(count) if most is None else f"{number(count)} of {number(most)}"
