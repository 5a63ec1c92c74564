"""A look at the model before a run: a few answers to the run's first questions, on a button."""

import streamlit as st

from app import requests
from app.components.widgets import notice
from app.formats import escape_control_characters, literal
from app.requests import ProbeProcess, ProbeReport, TrainSpec

STATE = "model-probe"
"""The newest probe in the session: its settings and its process."""
_POLL_SECONDS = 1.0


def show(spec: TrainSpec) -> None:
    """Show the button that starts a probe, and the newest probe of these settings."""
    key = spec.model_dump_json()
    probed = st.session_state.get(STATE)
    process = probed[1] if probed is not None and probed[0] == key else None
    with st.container(border=True, key="model-probe"):
        with st.container(horizontal=True, vertical_alignment="center"):
            is_asked = st.button("Probe the model", icon=":material/labs:", key="probe")
            st.caption("Samples 4 answers to 4 questions, on this machine; a run needs no probe.")
        if is_asked:
            _forget()
            process = requests.start_probe(spec)
            st.session_state[STATE] = (key, process)
        if process is not None:
            _follow(process)


def _forget() -> None:
    probed = st.session_state.pop(STATE, None)
    if probed is not None:
        probed[1].stop()


def _follow(process: ProbeProcess) -> None:
    result = process.result()
    if result is None:
        _wait()
    elif isinstance(result, str):
        notice.show("error", "No probe", result)
    else:
        _show(result)


@st.fragment(run_every=_POLL_SECONDS)
def _wait() -> None:
    """Look again each second; the whole page is drawn once there is a result."""
    probed = st.session_state.get(STATE)
    if probed is None or probed[1].result() is not None:
        st.rerun()
    with st.container(horizontal=True, vertical_alignment="center"):
        st.caption(":material/hourglass_top: The model answers; large models take minutes on a CPU.")
        if st.button("Stop", key="stop-probe", type="tertiary"):
            _forget()
            st.rerun()


def _show(report: ProbeReport) -> None:
    figures = (
        ("Pass rate", f"{report.pass_rate:.0%}", "Share of right answers"),
        ("Format rate", f"{report.format_rate:.0%}", "Share of responses in which the grader finds an answer"),
        ("Truncated", f"{report.truncation_rate:.0%}", "Share of responses that do not end within the longest allowed"),
        ("Entropy", f"{report.mean_entropy:.2f}", "Nats a token"),
    )
    for column, (label, value, help_text) in zip(st.columns(len(figures)), figures, strict=True):
        column.metric(label, value, help=help_text)
    if report.advice():
        notice.show("warning", "What to do", "\n".join(report.advice()))
    with st.expander("Prompt and answers"):
        st.caption("The first prompt, as the model gets it")
        st.code(escape_control_characters(report.prompt), language=None, wrap_lines=True)
        for answer in report.answers:
            st.caption(f"{answer.verdict} · gold answer {literal(answer.gold_answer)}")
            st.code(escape_control_characters(answer.text), language=None, wrap_lines=True)
