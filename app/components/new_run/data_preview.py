"""A look at data and model before a run, and at rollouts of other programs, which become a run of this workbench."""

import math
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import plotly.graph_objects as go
import streamlit as st

from exgrpo.app import theme
from exgrpo.app.components.widgets import figures, notice
from exgrpo.app.formats import escape_control_characters, literal, with_code
from exgrpo.app.settings import runs_root
from exgrpo.db.statistics import half_of_mean, wilson
from exgrpo.jobs.actions import import_process, page_commands
from exgrpo.jobs.actions.preflight.data_preview import DataPreview, preview_data
from exgrpo.jobs.actions.preflight.looks import FirstLook, first_look
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.data_rows import DataError
from exgrpo.jobs.training.probe_report import ProbeReport

_SECONDS = 60
_LOOK_SECONDS = 600
"""How long a bad look, which is not remembered otherwise, is shown before it is taken again."""


def show(spec: TrainSpec) -> None:
    """Show a fold with the preview; data is read when it is open."""
    fold = st.expander(
        "Data preview", icon=":material/dataset:", key="data-preview", on_change="rerun", bind="query-params"
    )
    if not fold.open:
        return
    with fold:
        try:
            preview = _preview(spec.model_dump_json(include={"data", "model", "kind"}), spec)
        except (DataError, OSError, ValueError) as error:
            notice.show("info", "No preview", str(error))
            return
        show_preview(preview, spec.algorithm.max_prompt_tokens)


def show_look(spec: TrainSpec) -> None:
    """Show a fold with the first look at the model, which is taken when it is open and remembered."""
    fold = st.expander("First look at the model", icon=":material/visibility:", key="first-look", on_change="rerun")
    if not fold.open:
        return
    with fold:
        look = _look(spec.model_dump_json(include={"engine", "model"}), spec)
        if look is None:
            st.caption(
                "The model is checked when the run starts, because it is not on this machine or because verl loads it."
            )
        elif look.is_good:
            st.caption(with_code(look.sentence))
        else:
            notice.show("error", "This model cannot be trained", look.sentence)


@st.cache_data(ttl=_SECONDS, show_spinner="Reading the first rows", max_entries=20)
def _preview(key: str, _spec: TrainSpec) -> DataPreview:  # noqa: ARG001 - what the preview depends on
    return preview_data(_spec)


@st.cache_data(
    ttl=_LOOK_SECONDS,
    show_spinner="Generating and scoring a few tokens; large models take minutes",
    max_entries=20,
)
def _look(key: str, _spec: TrainSpec) -> FirstLook | None:  # noqa: ARG001 - what the look depends on
    return first_look(_spec)


def show_preview(preview: DataPreview, max_prompt_tokens: int | None = None) -> None:
    """Show the first questions, and the lengths of all that were read with the longest that is allowed."""
    unit = "tokens" if preview.is_in_tokens else "characters"
    if preview.notice:
        st.caption(with_code(preview.notice))
    if preview.lengths:
        figures.show_card(
            "Length of prompts", f"{unit}, of the first {len(preview.lengths):,} questions",
            _histogram(preview, max_prompt_tokens), "prompt-lengths", f"Histogram of prompt lengths in {unit}",
        )  # fmt: skip
    for number, question in enumerate(preview.questions, start=1):
        answer = f" · gold answer {literal(question.answer)}" if question.answer else ""
        st.caption(f"Question {number}{answer} · {question.grading}")
        st.code(escape_control_characters(question.prompt), language=None, wrap_lines=True)


def _histogram(preview: DataPreview, max_prompt_tokens: int | None) -> go.Figure:
    colours = theme.palette()
    lengths = np.array(preview.lengths, dtype=np.int32)
    counts, edges = np.histogram(lengths, bins=min(40, max(1, int(np.ptp(lengths)) + 1)))
    unit = "tokens" if preview.is_in_tokens else "characters"
    figure = figures.new_figure(190, unit, hovermode="closest", bargap=0.05)
    figure.add_trace(
        go.Bar(
            x=((edges[:-1] + edges[1:]) / 2).astype(np.float32),
            y=counts.astype(np.int32),
            width=np.diff(edges).astype(np.float32),
            marker={"color": colours.fresh, "line": {"width": 0}},
            hovertemplate="about %{x:.0f}: %{y:,} prompts<extra></extra>",
        )
    )
    if preview.is_in_tokens and max_prompt_tokens and lengths.max() > 0.5 * max_prompt_tokens:
        figure.add_vline(
            x=max_prompt_tokens, line={"color": colours.warning, "dash": "dash"}, annotation_text="longest allowed"
        )
    return figure


PROBE_STATE = "model-probe"
"""The newest probe in the session: its settings and its report."""


def show_probe(spec: TrainSpec) -> None:
    """Show the button that starts a probe, and the newest probe of these settings; any other click stops it."""
    key = spec.model_dump_json()
    with st.container(border=True, key="model-probe"):
        with st.container(horizontal=True, vertical_alignment="center"):
            is_asked = st.button("Probe the model", icon=":material/labs:", key="probe")
            st.caption("Samples 4 answers to 4 questions, on this machine; a run needs no probe.")
        if is_asked:
            st.session_state[PROBE_STATE] = key, _probe(spec)
        probed, report = st.session_state.get(PROBE_STATE, (None, None))
        if probed == key and report is not None:
            _show_report(report)


def _probe(spec: TrainSpec) -> ProbeReport | None:
    report, place = None, st.empty()
    with notice.refusals("No probe"), closing(page_commands.probe(runs_root(), spec)) as stream:
        with place.container(horizontal=True, vertical_alignment="center"):
            line = st.empty()
            st.button("Stop", key="stop-probe", type="tertiary")
        for report in stream:  # noqa: B007 - the last one is the result
            # Writing to the page is where Streamlit ends a script whose page was left.
            line.caption(":material/hourglass_top: The model answers; large models take minutes on a CPU.")
    place.empty()
    return report


def _show_report(report: ProbeReport) -> None:
    num_answers = report.num_questions * report.num_samples
    rates = (
        ("Pass@1", report.pass_rate, "Share of correct responses"),
        ("Format rate", report.format_rate, "Share of responses in which the grader finds an answer"),
        ("Truncated", report.truncation_rate, "Share of responses that do not end within the longest allowed"),
    )
    tiles = []
    for label, share, help_text in rates:
        rate = wilson(round(share * num_answers), num_answers)
        ends = f"{rate.low:.0%} to {rate.high:.0%} of {num_answers:,}"
        tiles.append((label, f"{share:.0%}", ends, f"{help_text}; next to it the 95% interval"))
    half = half_of_mean(report.entropy_deviation, num_answers)
    reach = f"{num_answers:,} answers" if math.isnan(half) else f"± {half:.2f} of {num_answers:,} answers"
    help_text = "Nats a token, the mean over answers; below it half of its 95% interval"
    figures.show_tiles([*tiles, ("Entropy", f"{report.mean_entropy:.2f}", reach, help_text)])
    if report.advice():
        notice.show("warning", "What to do", "\n".join(report.advice()))
    with st.expander("Prompt and answers"):
        st.caption("The first prompt, as the model gets it")
        st.code(escape_control_characters(report.prompt), language=None, wrap_lines=True)
        for answer in report.answers:
            st.caption(f"{answer.verdict} · gold answer {literal(answer.gold_answer)}")
            st.code(escape_control_characters(answer.text), language=None, wrap_lines=True)


def show_open_rollouts() -> None:
    """Show the menu with the form; open the run's page once the rollouts are read."""
    with st.popover("Open rollouts", icon=":material/folder_open:", key="open-rollouts"):
        _ask_for_rollouts()


def _ask_for_rollouts() -> None:
    st.caption("Dumps and logs of any trainer; the format is found by content. `exgrpo view PATH` needs no workbench.")
    path = st.text_input("Path on this server", key="rollouts-path", placeholder="/data/run/rollouts")
    files = st.file_uploader("or files from here", accept_multiple_files=True, key="rollouts-files")
    mapping = st.text_area(
        "Own format", key="rollouts-format", height=80, placeholder="prompt: $.input\nresponse: $.output",
        help="Only for rows of no known format: YAML that says where in a row the values are",
    )  # fmt: skip
    with st.container(horizontal=True):
        is_preview = st.button("Preview", icon=":material/dataset:", key="rollouts-preview")
        is_open = st.button("Open", icon=":material/folder_open:", type="primary", key="rollouts-open")
    if not (is_preview or is_open):
        return
    with TemporaryDirectory(prefix="exgrpo-upload-") as folder, notice.refusals("Not opened"):
        for file in files:
            Path(folder, Path(file.name).name).write_bytes(file.getvalue())
        source = folder if files else path.strip()
        if is_preview:
            show_preview(import_process.preview_import(source, mapping))
            return
        with st.spinner("Reading the rollouts"):
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            origin = f"{files[0].name}{more}" if files else ""
            with import_process.format_file(mapping) as own_format:
                imported = import_process.import_in_process(runs_root(), Path(source), own_format, origin=origin)
        if len(imported.run_ids) > 1:  # such as a run for each task of an evaluation
            st.switch_page("app_pages/runs.py")
        st.switch_page("app_pages/run.py", query_params={"run": imported.run_id})
