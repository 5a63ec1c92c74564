"""Set up a run and launch it."""

from collections.abc import Callable, Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import requests
from app.components.new_run import data_preview, form_state, spec_form, spec_summary
from app.components.widgets import address_choice, notice
from app.requests import TrainSpec, UserError

NO_PRESET = "paper defaults"
DEFAULT_PRESET = "chains-exgrpo"
FROM = "from"


def _start() -> tuple[Mapping[str, object], str]:
    """Return the initial values of the form and a key that names them."""
    sources: dict[str, tuple[Callable[[str], Mapping[str, object]], str]] = {
        FROM: (_clone, "an earlier run"),
        form_state.DRAFT_ADDRESS: (requests.load_draft, "a draft"),
    }
    for name, (load, source_name) in sources.items():
        source = st.query_params.get(name)
        if source:
            try:
                values = load(source)
            except UserError as error:
                notice.show("error", "Cannot clone that run" if name == FROM else "Cannot open that draft", str(error))
            else:
                st.caption(f"Starts from the values of {source_name}. **New run** in the menu starts from a preset.")
                return values, f"{name}-{source}"
    chosen = address_choice.select(
        "Preset", _presets(), "preset", DEFAULT_PRESET, [form_state.ADDRESS], 520,
        "Where the form starts; every field can be changed",
    )  # fmt: skip
    spec = TrainSpec() if chosen == NO_PRESET else requests.load_preset(chosen)
    return spec.model_dump(mode="json"), "defaults" if chosen == NO_PRESET else f"preset-{chosen}"


@st.cache_data(show_spinner=False)
def _presets() -> dict[str, str]:
    """Return the presets by name, each with its engine."""
    names = {name: f"{name} · {requests.load_preset(name).engine}" for name in requests.preset_names()}
    return {NO_PRESET: NO_PRESET, **names}


def _clone(run_id: str) -> Mapping[str, object]:
    return requests.clone(run_id).model_dump(mode="json")


def _launch(spec: TrainSpec, refused: DeltaGenerator) -> None:
    try:
        run_id = requests.submit(spec, parent_run_id=st.query_params.get(FROM))
    except UserError as error:
        with refused:
            notice.show("error", "Could not launch", str(error))
    else:
        form_state.forget()
        st.switch_page("app_pages/run.py", query_params={"run": run_id})


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.title("New run", anchor=False, width="content")
    opened = form_state.show_drafts()
if opened is not None:
    st.switch_page("app_pages/new_run.py", query_params={form_state.DRAFT_ADDRESS: opened})
form, summary = st.columns([5, 3], gap="large")
with form:
    question = st.container()
    state = form_state.open_form(*_start())
    checked = spec_summary.check(state.content, spec_form.text_mistake())
    with question:
        where = spec_form.show_where(state, checked.mistakes)
    spec_form.show(state, where, checked.mistakes)
    if checked.spec is not None and not checked.mistakes:
        data_preview.show(checked.spec)
        data_preview.show_look(checked.spec)
        data_preview.show_probe(checked.spec)
form_state.keep_in_address(state)
with summary, st.container(key="new-run-summary"):
    launched, refused = spec_summary.show(checked, state)
if launched is not None:
    _launch(launched, refused)
