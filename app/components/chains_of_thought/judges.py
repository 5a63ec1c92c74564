"""Judges of a run: their jobs, prompts and form, and their calibration and agreement with others."""

from collections.abc import Sequence

import pandas as pd
import streamlit as st

from exgrpo.app.components.widgets import data_table, notice, run_state, shown_text
from exgrpo.app.formats import ago, counted, escape_control_characters, number, share
from exgrpo.app.queries.answers import ask
from exgrpo.app.settings import runs_root
from exgrpo.db.queries import judging
from exgrpo.db.rows.chains_of_thought import AgreementRow
from exgrpo.db.rows.judging import JudgeRow
from exgrpo.db.statistics import Rate, interval_text, wilson
from exgrpo.jobs.actions.progress import job_progress
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.evaluation.analysis.report import find_calibration
from exgrpo.jobs.evaluation.judging.calibration import Calibration, CorrectedRate, cohen_kappa
from exgrpo.jobs.evaluation.judging.verdicts import load_judge_prompt
from exgrpo.jobs.specs.base import checked
from exgrpo.jobs.specs.judging import JudgeSpec
from exgrpo_core.recording.run_folder import id_end
from exgrpo_core.recording.run_status import RunStatus

_COUNTS = {
    "Responses": "num_responses", "Valid": "num_valid", "Not valid": "num_invalid", "Unjudged": "num_unjudged",
    "Tokens": "num_tokens",
}  # fmt: skip
PAPER_JUDGE = "Qwen/Qwen3-32B"
_KINDS = {"oracle": "oracle of the task", "server": "language model behind a server"}


def show(jobs: Sequence[JudgeRow]) -> None:
    """Show one row per job; a click opens it as a run."""
    if not jobs:
        notice.show_empty("gavel", "No judge runs yet", "Start one below; the paper's judge is Qwen3-32B.")
        return
    frame = table(jobs)
    columns = {
        "Progress": st.column_config.ProgressColumn(format="percent", min_value=0.0, max_value=1.0, width=110),
        "Votes": st.column_config.TextColumn(help="Recorded votes, and the votes that the run is for"),
        "Requests": st.column_config.TextColumn(help="Retries counted; of the spend cap where there is one"),
        "Tokens": st.column_config.TextColumn(help="Prompt and answer; of the spend cap where there is one"),
    }
    data_table.export_above(frame, "judge-jobs")
    picked = data_table.pick(
        frame, "judge-jobs", "Runs of judges with state, progress, votes, requests and tokens",
        [job.judge_run_id for job in jobs], columns,
    )  # fmt: skip
    for job in jobs:
        if job.status in {RunStatus.FAILED, RunStatus.LOST} and job.status_reason:
            st.text(escape_control_characters(f"{id_end(job.judge_run_id)}: {job.status_reason}"))
    if picked is not None:
        st.switch_page("app_pages/run.py", query_params={"run": jobs[picked].judge_run_id})


def table(jobs: Sequence[JudgeRow]) -> pd.DataFrame:
    """Return the jobs as a table, newest first."""
    plans = [(job_progress(runs_root(), job.judge_run_id) or (0, None))[1] for job in jobs]
    return pd.DataFrame(
        {
            "Job": [id_end(job.judge_run_id) for job in jobs],
            "State": [run_state.state_name(job.status) for job in jobs],
            "Judge": [escape_control_characters(job.judge) for job in jobs],
            "Prompt": [escape_control_characters(job.prompt) or None for job in jobs],
            "Progress": [
                1.0 if job.status == RunStatus.FINISHED else min(1.0, job.num_votes / plan) if plan else 0.0
                for job, plan in zip(jobs, plans, strict=True)
            ],
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
        alt = "Judges and prompt versions with the number of jobs, responses and tokens"
        data_table.show(_prompt_table(rows), "judge-prompts", alt)
    prompt = load_judge_prompt()
    with st.expander(f"Full text of {prompt.version_name}", icon=":material/description:", key="prompt-words"):
        st.caption(prompt.source)
        st.caption("The workbench puts this guard before the paper's prompt:")
        shown_text.show_raw(prompt.guard)
        shown_text.show_raw(prompt.template)


def _prompt_table(rows: Sequence[JudgeRow]) -> pd.DataFrame:
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
        content: dict[str, object] = {"judge": "oracle"}
        if kind == "oracle":
            st.caption("Checks every step of each correct answer, without a server or cost.")
        else:
            content = _server_fields()
        content["judged"] = {"run_id": run_id} | _judged_fields()
        is_sent = st.form_submit_button("Start judge run", type="primary", icon=":material/gavel:")
    if is_sent:
        with notice.refusals("Not started"):
            judge_id = queue_job(runs_root(), checked(JudgeSpec, content, "form"))
            st.success(f"Queued as {judge_id}.", icon=":material/check:")


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
        "address": address.strip(), "model": model.strip(), "max_requests": max_requests,
        "max_total_tokens": max_tokens, "num_parallel": parallel, "requests_per_minute": rate,
    }  # fmt: skip
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


def calibration_of(run_id: str, judge_run_id: str | None) -> Calibration | None:
    """Return the newest calibration of a judge's model with its prompt; the oracle needs none."""
    job = next((job for job in ask(judging.list_judges, run_id) if job.judge_run_id == judge_run_id), None)
    if job is None or not job.prompt:
        return None
    return ask(find_calibration, job.judge, job.prompt)


def show_calibration(calibration: Calibration | None) -> None:
    """Show the rates against human labels with their intervals, or how to get them."""
    st.markdown("**Calibration on labelled solutions**")
    if calibration is None:
        st.caption("None for this judge and prompt. Rates are not corrected for the judge's errors. To calibrate it:")
        st.code("exgrpo judge --labelled processbench.jsonl --server http://127.0.0.1:8000/v1", language=None)
        return
    alt = "Sensitivity, specificity, unjudged share and flips with 95% intervals"
    data_table.show(_calibration_table(calibration), "judge-calibration", alt)
    accuracy = share(calibration.accuracy)
    st.caption(
        f"Cohen's kappa {number(calibration.kappa)}, accuracy {accuracy}, {counted(calibration.num_items, 'item')}."
    )


def _calibration_table(calibration: Calibration) -> pd.DataFrame:
    names = {
        "sensitivity": "valid chains called valid",
        "specificity": "invalid chains called invalid",
        "unjudged": "items without a verdict",
        "flips": "items whose votes contradict each other",
    }
    rates = [getattr(calibration, name) for name in names]
    return pd.DataFrame(
        {
            "Rate": [name.capitalize() for name in names],
            "Of": list(names.values()),
            "Value": [share(rate.value) for rate in rates],
            "95% interval": [interval(rate) if rate.num_items else None for rate in rates],
            "Items": [rate.num_items for rate in rates],
        }
    )


def show_agreement(rows: Sequence[AgreementRow]) -> None:
    """Show how the judge's verdicts compare with the oracle's and with users'."""
    st.markdown("**Agreement**")
    if not rows:
        st.caption(
            "Nothing to compare with. A judge chosen above is compared with the oracle; your verdicts, under "
            "**Verdicts**, against either."
        )
        return
    alt = "Agreement of the judge with the oracle and with users: share, kappa and the four counts"
    data_table.show(_agreement_table(rows), "judge-agreement", alt)


def _agreement_table(rows: Sequence[AgreementRow]) -> pd.DataFrame:
    rates = [wilson(row.num_both_valid + row.num_both_invalid, row.num_compared) for row in rows]
    tables = [
        {(True, True): row.num_both_valid, (True, False): row.num_only_judge, (False, True): row.num_only_other,
         (False, False): row.num_both_invalid}
        for row in rows
    ]  # fmt: skip
    return pd.DataFrame(
        {
            "With": [row.other for row in rows],
            "Compared": [row.num_compared for row in rows],
            "Agree": [share(rate.value) for rate in rates],
            "95% interval": [interval(rate) for rate in rates],
            "Kappa": [number(cohen_kappa(counts)) for counts in tables],
            "Both valid": [row.num_both_valid for row in rows],
            "Valid by the judge only": [row.num_only_judge for row in rows],
            "Valid by the other only": [row.num_only_other for row in rows],
            "Both not valid": [row.num_both_invalid for row in rows],
        }
    )


def interval(rate: Rate | CorrectedRate) -> str:
    """Return a rate's 95% interval in percent."""
    return f"{interval_text((rate.low, rate.high))}%"
