"""Set up a run and launch it."""

import streamlit as st

from app import commands
from app.commands import CommandError, TrainSpec
from app.components import notice, spec_form, spec_summary

NO_PRESET = "paper defaults"
DEFAULT_PRESET = "chains-exgrpo"


def _start() -> tuple[TrainSpec, str, str | None]:
    """Return the specification to start from, a key that names it, and its preset."""
    source = st.query_params.get("from")
    if source:
        try:
            return commands.clone(source), f"from-{source}", None
        except CommandError as error:
            notice.show("error", "Cannot clone that run", str(error))
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
    if chosen == NO_PRESET:
        return TrainSpec(), "defaults", None
    return commands.load_preset(chosen), f"preset-{chosen}", chosen


st.title("New run", anchor=False)
spec, origin, preset = _start()
start = spec.model_dump(mode="json")
form, summary = st.columns([5, 3], gap="large")
with form:
    content = spec_form.show(start, origin)
with summary:
    base = start if preset else TrainSpec().model_dump(mode="json")
    launched = spec_summary.show(content, base, preset)
    if launched is not None:
        try:
            run_id = commands.submit(launched)
        except CommandError as error:
            notice.show("error", "Could not launch", str(error))
        else:
            st.switch_page("app_pages/run.py", query_params={"run": run_id})
