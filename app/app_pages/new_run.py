"""Set up a run and launch it."""

import streamlit as st

from app import commands
from app.commands import CommandError, SpecError, TrainSpec
from app.components import notice, spec_form, spec_summary

NO_PRESET = "paper defaults"
DEFAULT_PRESET = "chains-exgrpo"


def _start() -> tuple[TrainSpec, str]:
    """Return the specification to start from and a key that names it."""
    source = st.query_params.get("from")
    if source:
        try:
            spec = commands.clone(source)
        except CommandError as error:
            notice.show("error", "Cannot clone that run", str(error))
        else:
            st.caption("Starts from the values of an earlier run. **New run** in the menu starts from a preset.")
            return spec, f"from-{source}"
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
    return (TrainSpec(), "defaults") if chosen == NO_PRESET else (commands.load_preset(chosen), f"preset-{chosen}")


def _launch(spec: TrainSpec) -> None:
    try:
        run_id = commands.submit(spec)
    except (CommandError, SpecError) as error:
        notice.show("error", "Could not launch", str(error))
    else:
        st.switch_page("app_pages/run.py", query_params={"run": run_id})


st.title("New run", anchor=False)
start, origin = _start()
form, summary = st.columns([5, 3], gap="large")
with form:
    content = spec_form.show(start.model_dump(mode="json"), origin)
with summary:
    launched = spec_summary.show(content)
    if launched is not None:
        _launch(launched)
