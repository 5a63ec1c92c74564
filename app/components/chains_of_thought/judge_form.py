"""Starts a judge on a run: the oracle of a built-in task, or a language model behind a server, with a spend cap."""

import streamlit as st

from app import requests
from app.components.widgets import notice

PAPER_JUDGE = "Qwen/Qwen3-32B"
_ORACLE, _SERVER = "oracle of the task", "language model behind a server"


def show(run_id: str, *, has_oracle: bool) -> None:
    """Show the form; on its button the job is queued, or one sentence names the mistake."""
    kind = _SERVER
    if has_oracle:
        kind = st.segmented_control("Judge", [_ORACLE, _SERVER], default=_ORACLE, key="judge-kind", required=True)
    with st.form("judge-form", border=True, enter_to_submit=False):
        content = _oracle_fields() if kind == _ORACLE else _server_fields()
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
