"""Set up a run and launch it."""

from collections.abc import Mapping

import streamlit as st

from app import commands
from app.commands import TrainSpec, UserError
from app.components.new_run import data_preview, draft_menu, spec_form, spec_summary
from app.components.widgets import notice

NO_PRESET = "paper defaults"
DEFAULT_PRESET = "chains-exgrpo"


def _start() -> tuple[Mapping[str, object], str]:
    """Return the initial values of the form and a key that names them."""
    for name, load, what in (("from", _clone, "an earlier run"), (draft_menu.ADDRESS, commands.load_draft, "a draft")):
        source = st.query_params.get(name)
        if source:
            try:
                values = load(source)
            except UserError as error:
                notice.show(
                    "error", "Cannot clone that run" if name == "from" else "Cannot open that draft", str(error)
                )
            else:
                st.caption(f"Starts from the values of {what}. **New run** in the menu starts from a preset.")
                return values, f"{name}-{source}"
    names = commands.preset_names()
    chosen = st.selectbox(
        "Preset",
        [NO_PRESET, *names],
        index=names.index(DEFAULT_PRESET) + 1 if DEFAULT_PRESET in names else 0,
        key="preset",
        bind="query-params",
        help="Where the form starts; every field can be changed",
        width=420,
    )
    spec = TrainSpec() if chosen == NO_PRESET else commands.load_preset(chosen)
    return spec.model_dump(mode="json"), "defaults" if chosen == NO_PRESET else f"preset-{chosen}"


def _clone(run_id: str) -> Mapping[str, object]:
    return commands.clone(run_id).model_dump(mode="json")


def _launch(spec: TrainSpec) -> None:
    try:
        run_id = commands.submit(spec)
    except UserError as error:
        notice.show("error", "Could not launch", str(error))
    else:
        st.switch_page("app_pages/run.py", query_params={"run": run_id})


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.title("New run", anchor=False, width="content")
    opened = draft_menu.show_list()
if opened is not None:
    st.switch_page("app_pages/new_run.py", query_params={draft_menu.ADDRESS: opened})
start, origin = _start()
form, summary = st.columns([5, 3], gap="large")
with form:
    content = spec_form.show(start, origin)
with summary:
    spec, is_ready = spec_summary.check(content)
    launched = spec_summary.show(spec, content, is_ready=is_ready)
with form:
    if spec is not None and is_ready:
        data_preview.show(spec)
if launched is not None:
    with summary:
        _launch(launched)
