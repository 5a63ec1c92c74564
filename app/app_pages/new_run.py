"""Set up a run and launch it."""

from collections.abc import Callable, Mapping

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from app import address, requests
from app.components.new_run import data_preview, form_state, spec_form, spec_summary
from app.components.widgets import address_choice, notice
from app.formats import with_code
from app.requests import TrainSpec, UserError

DEFAULT_PRESET = "chains-exgrpo"
PRESET, GROUP_KEY = "preset", "preset-group"
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
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        chosen = _choose_preset()
    st.caption(with_code(requests.preset_description(chosen)))
    return requests.load_preset(chosen).model_dump(mode="json"), f"preset-{chosen}"


def _choose_preset() -> str:
    """Show groups of presets and those of the group in which the chosen one is; return that one."""
    groups: dict[str, dict[str, str]] = {}
    for name, engine in _engines().items():
        groups.setdefault(requests.preset_group(name), {})[name] = f"{name} · {engine}"
    wanted = st.query_params.get(PRESET)
    group = requests.preset_group(wanted if requests.preset_exists(wanted) else DEFAULT_PRESET)
    st.session_state[GROUP_KEY] = group
    st.segmented_control(
        "Presets for", list(groups), format_func=str.capitalize, required=True, key=GROUP_KEY, on_change=_open_group,
    )  # fmt: skip
    return address_choice.select(
        "Preset", groups[group], PRESET, next(iter(groups[group])), [form_state.ADDRESS], 420,
        "Where the form starts; every field can be changed",
    )  # fmt: skip


def _open_group() -> None:
    group = st.session_state[GROUP_KEY]
    first = next(name for name in requests.preset_names() if requests.preset_group(name) == group)
    address.put({PRESET: first, form_state.ADDRESS: None})


@st.cache_data(show_spinner=False)
def _engines() -> dict[str, str]:
    """Return the engine of each preset."""
    return {name: requests.load_preset(name).engine for name in requests.preset_names()}


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
