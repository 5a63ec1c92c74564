"""The dialog that starts evaluations of runs' checkpoints or of any models."""

from collections.abc import Sequence
from pathlib import Path
from typing import get_args

import streamlit as st

from exgrpo.app import address
from exgrpo.app.components.benchmarks.backbone_bars import STUDIES
from exgrpo.app.components.benchmarks.score_table import printed_lines
from exgrpo.app.components.widgets import notice
from exgrpo.app.formats import counted, escape_control_characters, literal, with_code
from exgrpo.app.queries.runs import training_names
from exgrpo.app.settings import runs_root
from exgrpo.db.rows.display_names import distinct_names
from exgrpo.jobs.actions.evaluations import asked_and_graded, plan_evaluation, resolve_evaluation
from exgrpo.jobs.actions.preflight import data_preview
from exgrpo.jobs.actions.preflight.data_preview import BenchmarkLook
from exgrpo.jobs.actions.queueing import queue_checked
from exgrpo.jobs.evaluation.protocols import benchmarks_folder, load_protocols, load_user_benchmarks
from exgrpo.jobs.machine.engine_environments import VLLM_LOOP, EngineEnvironmentError, engine_python
from exgrpo.jobs.specs.base import PARTS, AnswerKind, DeclaredKind

GENERATORS = ("embedded", "vllm", "server")
_MAX_FILE_MB = 50
_LOOK = "evaluate-look"
TEMPLATES = ("paper", "paper_llama_base", "compact", "none", "chat")


ADDRESS = "start"
"""The parameter of the address that opens the dialog; `target` and `template` fill it in."""


def show_button() -> None:
    """Show the button that opens the dialog."""
    st.button(
        "Score models", icon=":material/leaderboard:", type="primary", key="score-models", on_click=address.put,
        args=({ADDRESS: "true"},),
    )  # fmt: skip


def _close() -> None:
    address.put(dict.fromkeys((ADDRESS, "target", "template")))


@st.dialog("Score models", width="large", on_dismiss=_close)
def show() -> None:
    """Show the form in a dialog; its button queues an evaluation per model, or one sentence names the mistake.

    The page of a single evaluation is opened; several are followed in the list of runs.
    """
    targets = _targets()
    left, right = st.columns(2, gap="medium")
    with left:
        wanted = st.query_params.get("template", "")
        template = st.selectbox(
            "Template", TEMPLATES, index=TEMPLATES.index(wanted) if wanted in TEMPLATES else None,
            placeholder="the run's; paper for other models", key="evaluate-template",
        )  # fmt: skip
    with right:
        look, answer_kind = _own_data(targets[0] if targets else "", template)
    if look is not None:
        _show_look(look)
    with st.form("evaluate-form", border=False, enter_to_submit=False):
        chosen = _benchmarks(look)
        limits, fields = _fields()
        _say_missing_vllm()
        with st.expander("Server", icon=":material/dns:", key="evaluate-server"):
            server_address = st.text_input(
                "Address", key="evaluate-address", placeholder="http://HOST:8000/v1",
                help="Its key is read from EXGRPO_API_KEY where the supervisor runs, never from here",
            )  # fmt: skip
            model = st.text_input("Name of the model there", key="evaluate-model")
        named = st.session_state.get("evaluate-file") or st.session_state["evaluate-source"].strip()
        is_unread = look is None and bool(named)  # else the benchmarks below alone would be scored
        is_sent = st.form_submit_button(
            "Start evaluation", type="primary", icon=":material/play_arrow:", disabled=is_unread
        )
    if is_sent:
        is_served = fields["generator"] == "server"
        server = {"address": server_address.strip(), "model": model.strip()} if is_served else None
        benchmarks = [{"name": name, **_own_fields(name, look, answer_kind), **limits} for name in chosen]
        _submit(targets, {**fields, "template": template, "benchmarks": benchmarks, "server": server})


def _own_data(target: str, template: str | None) -> tuple[BenchmarkLook | None, DeclaredKind | None]:
    """Show the box for a user's own data; return what it holds, None without any or with a sentence on its mistake.

    The second is how it is graded, None by the run or the rows.
    """
    source = st.text_input(
        "Your data", key="evaluate-source", placeholder="A file on the server, or a Hugging Face data set",
        help="Parquet or JSON lines with a question and its gold answer in each row, or with questions of the paper's "
        f"benchmarks. What is in `{benchmarks_folder(runs_root())}` is offered below by its name",
    )  # fmt: skip
    dropped = st.file_uploader(
        "or a file from here", key="evaluate-file", label_visibility="collapsed", max_upload_size=_MAX_FILE_MB
    )
    if dropped is None and not source.strip():
        st.session_state.pop(_LOOK, None)
        return None, None
    answer_kind = st.selectbox(
        "Graded as", get_args(AnswerKind), index=None, placeholder="the run's, else by the rows", key="evaluate-kind",
    )  # fmt: skip
    looked_at = (source.strip() if dropped is None else dropped.file_id), target, template, answer_kind
    kept: tuple[object, object, BenchmarkLook] | None = st.session_state.get(_LOOK)
    if kept is not None and kept[:2] == (looked_at, _state(kept[2].source)):
        return kept[2], answer_kind  # a large file is not read again at each click
    with notice.refusals("Not a benchmark"), st.spinner("Reading the file"):
        path = (
            source.strip()
            if dropped is None
            else data_preview.keep_benchmark_file(runs_root(), dropped.name, dropped.getvalue())
        )
        asked, graded = asked_and_graded(runs_root(), target)
        look = data_preview.look_at_benchmark(runs_root(), path, template or asked, answer_kind or graded)
        st.session_state[_LOOK] = looked_at, _state(look.source), look
        return look, answer_kind
    return None, None


def _say_missing_vllm() -> None:
    try:
        engine_python(VLLM_LOOP)
    except EngineEnvironmentError as error:
        st.caption(f":material/info: vllm: {with_code(str(error).partition(': ')[2])}")


def _state(source: str) -> tuple[int, int] | None:
    """Return size and time of change of a file, None of a data set of the hub."""
    path = Path(source)
    return ((state := path.stat()).st_size, state.st_mtime_ns) if path.exists() else None


def _show_look(look: BenchmarkLook) -> None:
    """Show the first question as it is asked and its gold answer as the grader reads it."""
    what = "The paper's " + ", ".join(look.papers) if look.papers else f"Your benchmark {look.name}"
    st.caption(f"{literal(what)}: {counted(look.num_questions, 'question')}. The first one, as it is asked:")
    st.code(escape_control_characters(look.prompt), language=None, wrap_lines=True)
    st.text(escape_control_characters(f"Gold answer: {look.gold}, graded as {look.graded_as}"))
    for text in look.notices:
        st.caption(with_code(text))


def _benchmarks(look: BenchmarkLook | None) -> list[str]:
    """Show the choice of benchmarks: the paper's, and the user's."""
    declared = load_user_benchmarks(runs_root())
    if declared.faults:
        notice.show("error", "Left out of your own benchmarks", "\n".join(declared.faults))
    titles = {name: choice.title or name for name, choice in declared.choices.items()}
    titles |= {name: protocol.title for name, protocol in load_protocols().items()}
    usual, key = ["math500"], "evaluate-benchmarks"
    if look is not None:
        usual, key = [*look.papers] or [look.name], f"{key}-{look.name}"
        titles.setdefault(look.name, look.name)
    return st.multiselect(
        "Benchmarks", list(titles), usual, key=key, placeholder="Choose some", select_all=False,
        format_func=lambda name: escape_control_characters(titles[name]),
    )  # fmt: skip


def _own_fields(name: str, look: BenchmarkLook | None, answer_kind: DeclaredKind | None) -> dict[str, str | None]:
    """Return where the questions of a chosen benchmark are and how they are graded, nothing where its name says it."""
    if look is None or name not in {look.name, *look.papers}:
        return {}
    return {"source": look.source, "answer_kind": None if look.papers else answer_kind}


def _targets() -> list[str]:
    """Show the choice of the models: newest checkpoints of runs, and any others that are typed."""
    rows = training_names(has_steps=True)
    names = distinct_names((row.run_id, row.name) for row in rows)
    offered = {
        f"{run_id}@last": f"{escape_control_characters(name)}, newest checkpoint" for run_id, name in names.items()
    }
    offered |= {line.model: f"{line.model} (paper: {line.name})" for line in printed_lines(STUDIES) if line.model}
    wanted = [*filter(None, st.query_params.get_all("target"))]
    chosen = st.multiselect(
        "Models", list(dict.fromkeys([*wanted, *offered])), wanted,
        format_func=lambda source: offered.get(source, escape_control_characters(source)), accept_new_options=True,
        select_all=False, placeholder="Runs, RUN@STEP, folders, hub names or pip:PACKAGE", key="evaluate-models",
        help="Choose a run for its newest checkpoint, or write RUN@best (highest held-out score), RUN@STEP, a model's "
        "folder, GGUF file, hub name or pip:PACKAGE. Each model gets an evaluation of its own with the same settings",
    )  # fmt: skip
    return [name for source in chosen if (name := source.strip())]


def _fields() -> tuple[dict[str, int | None], dict[str, object]]:
    upper, lower = st.columns(3, gap="medium"), st.columns(3, gap="medium")
    num_questions = upper[0].number_input("Questions", 1, value=None, placeholder="all", key="evaluate-questions")
    num_samples = upper[1].number_input(
        "Samples per question", 1, value=None, placeholder="as declared", key="evaluate-n"
    )
    generator = upper[2].selectbox("Generated by", GENERATORS, key="evaluate-generator")
    temperature = lower[0].number_input(
        "Temperature", 0.0, value=None, step=0.1, placeholder="as declared, else 0.6", key="evaluate-temperature"
    )
    longest = lower[1].number_input(
        "Longest answer, tokens", 1, value=None, placeholder="the run's; 8,192 for other models", key="evaluate-tokens"
    )
    rewards = st.multiselect(
        "Rewards", PARTS, key="evaluate-rewards", placeholder="the run's; none for other models",
        accept_new_options=True, select_all=False, format_func=escape_control_characters,
        help="Parts of a training reward whose means are shown with the scores. A part of your own is module:function, "
        "where this machine allows it",
    )  # fmt: skip
    return {"num_questions": num_questions, "samples_per_question": num_samples}, {
        "generator": generator,
        "temperature": temperature,
        "max_response_tokens": longest,
        "reward_parts": rewards or None,
    }


def _submit(targets: Sequence[str], content: dict[str, object]) -> None:
    if not targets:
        notice.show(
            "error",
            "Not started",
            "Models: expected a run, RUN@STEP, a folder, a hub name or pip:PACKAGE, got nothing.",
        )
        return
    queued = []
    for name in targets:
        with notice.refusals("Not started" if len(targets) == 1 else f"Not started: {escape_control_characters(name)}"):
            checked = resolve_evaluation(plan_evaluation(runs_root(), name, content, "form"), runs_root())
            queued.append(queue_checked(runs_root(), checked))
    if len(targets) == len(queued) == 1:
        st.switch_page("app_pages/run.py", query_params={"run": queued[0]})
    if queued:
        st.toast(f"Queued {counted(len(queued), 'evaluation')}", icon=":material/check:")
    if len(queued) == len(targets):
        st.switch_page("app_pages/runs.py", query_params={"kind": "Evaluations"})
