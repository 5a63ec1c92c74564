"""Judges of a run: their jobs with progress and cost, the versions of the prompt, and the form that starts one."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from app import requests
from app.components.chains_of_thought import thought_statistics
from app.components.widgets import data_table, empty_state, exports, notice, shown_text, status_badge
from app.formats import ago, escape_control_characters, number
from db.rows.display_names import id_end
from db.rows.judging import JudgeJobRow, JudgeRow

_COUNTS = {
    "Responses": "num_responses", "Valid": "num_valid", "Not valid": "num_invalid", "Unjudged": "num_unjudged",
    "Tokens": "num_tokens",
}  # fmt: skip
PAPER_JUDGE = "Qwen/Qwen3-32B"
_KINDS = {"oracle": "oracle of the task", "server": "language model behind a server"}


def show(jobs: Sequence[JudgeJobRow]) -> None:
    """Show one row per job; a click opens it as a run."""
    if not jobs:
        empty_state.show("gavel", "No judge jobs yet", "Start one below; the paper's judge is Qwen3-32B.")
        return
    frame = table(jobs)
    columns = {
        "Progress": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, width=110),
        "Votes": st.column_config.TextColumn(help="Recorded, of those the job is for"),
        "Requests": st.column_config.TextColumn(help="Retries counted; of the spend cap where there is one"),
        "Tokens": st.column_config.TextColumn(help="Prompt and answer; of the spend cap where there is one"),
    }
    picked = data_table.pick(
        frame, f"judge-jobs-{len(jobs)}", "Jobs of judges with state, progress, votes, requests and tokens", columns
    )
    exports.show(frame, "judge-jobs")
    for job in jobs:
        if job.status in {"failed", "lost"} and job.status_reason:
            st.text(escape_control_characters(f"{id_end(job.judge_run_id)}: {job.status_reason}"))
    if picked is not None:
        st.switch_page("app_pages/run.py", query_params={"run": jobs[picked].judge_run_id})


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
        data_table.show(
            frame, "judge-prompts", "Judges and prompt versions with the number of jobs, responses and tokens",
            dict.fromkeys(("Jobs", *_COUNTS), st.column_config.NumberColumn(format="localized")),
        )  # fmt: skip
    prompt = thought_statistics.load_judge_prompt()
    with st.expander(f"Full text of {prompt.version_name}", icon=":material/description:", key="prompt-words"):
        st.caption(prompt.source)
        st.caption("The workbench puts this guard before the paper's prompt:")
        shown_text.show_raw(prompt.guard)
        shown_text.show_raw(prompt.template)


def prompt_table(rows: Sequence[JudgeRow]) -> pd.DataFrame:
    """Return one row for each judge and prompt over all runs of the workbench."""
    by_prompt: dict[tuple[str, str], list[JudgeRow]] = {}
    for row in rows:
        by_prompt.setdefault((row.prompt, row.judge), []).append(row)
    return pd.DataFrame(
        {
            "Prompt": [escape_control_characters(prompt) for prompt, _ in by_prompt],
            "Judge": [escape_control_characters(judge) for _, judge in by_prompt],
            "Jobs": [len({row.judge_run_id for row in members}) for members in by_prompt.values()],
            **{
                name: [sum(getattr(row, field) for row in members) for members in by_prompt.values()]
                for name, field in _COUNTS.items()
            },
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


def show_form(run_id: str, *, has_oracle: bool) -> None:
    """Show the form; on its button the job is queued, or one sentence names the mistake."""
    kind = "server"
    if has_oracle:
        kind = st.segmented_control(
            "Judge", list(_KINDS), format_func=_KINDS.__getitem__, default="oracle", key="judge-kind", required=True
        )
    with st.form("judge-form", border=True, enter_to_submit=False):
        content = _oracle_fields() if kind == "oracle" else _server_fields()
        content["judged"] = {"run_id": run_id} | _judged_fields()
        is_sent = st.form_submit_button("Start judge job", type="primary", icon=":material/gavel:")
    if is_sent:
        _submit(content)


def _oracle_fields() -> dict[str, object]:
    st.caption("Checks every step of each correct answer, without a server or cost.")
    return {"judge": "oracle"}


def _server_fields() -> dict[str, object]:
    left, middle, right = st.columns([2, 2, 1], gap="medium")
    address = left.text_input(
        "Endpoint", key="judge-address", placeholder="http://127.0.0.1:8000/v1",
        help="A server that speaks OpenAI's chat completions, such as vllm serve; up to and with /v1",
    )  # fmt: skip
    model = middle.text_input("Model", PAPER_JUDGE, key="judge-model", help="Its name at the server")
    votes = right.number_input("Votes each", 1, 9, 1, key="judge-votes", help="The majority counts, a tie is unjudged")
    columns = st.columns(4, gap="medium")
    max_requests = columns[0].number_input(
        "Spend cap, requests", 1, value=None, placeholder="none", key="judge-requests", help="Retries count"
    )
    max_tokens = columns[1].number_input(
        "Spend cap, tokens", 1, value=None, placeholder="none", key="judge-tokens", help="Prompt and answer together"
    )
    parallel = columns[2].number_input("Requests at once", 1, value=16, key="judge-parallel")
    rate = columns[3].number_input("Requests per minute", 1, value=None, placeholder="no limit", key="judge-rate")
    st.caption("A key of the server is read from EXGRPO_JUDGE_API_KEY where the supervisor runs, never from here.")
    server = {
        "address": address.strip(),
        "model": model.strip(),
        "max_requests": max_requests,
        "max_total_tokens": max_tokens,
        "num_parallel": parallel,
        "requests_per_minute": rate,
    }
    return {"judge": "server", "server": server, "num_votes": votes}


def _judged_fields() -> dict[str, object]:
    columns = st.columns(4, gap="medium")
    return {
        "first_step": columns[0].number_input("From step", 1, value=None, placeholder="first", key="judge-first"),
        "last_step": columns[1].number_input("To step", 1, value=None, placeholder="last", key="judge-last"),
        "limit": columns[2].number_input(
            "At most", 1, value=None, placeholder="all", key="judge-limit", help="Drawn evenly over the steps"
        ),
    }


def _submit(content: dict[str, object]) -> None:
    try:
        job_id = requests.submit_judge(content)
    except requests.UserError as error:
        notice.show("error", "Not started", str(error))
        return
    st.success(f"Queued as {job_id}.", icon=":material/check:")
