"""Methods, Studies: the paper's tables as matrices of runs, to launch and to see next to the printed numbers."""

from collections import Counter
from collections.abc import Sequence

import streamlit as st

from exgrpo.app import address, settings
from exgrpo.app.components.new_run.field_shapes import fields
from exgrpo.app.components.studies import study_matrix, study_results
from exgrpo.app.components.widgets import address_choice, notice, run_choice
from exgrpo.app.formats import counted, with_code
from exgrpo.app.queries.benchmarks import newest_of_studies, read_study_results, study_runs
from exgrpo.jobs.actions.studies import sweeps
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, Study, load_study, study_names, wanted_keys
from exgrpo.jobs.actions.studies.numbers import number_rows
from exgrpo.jobs.actions.studies.sweeps import read_sweeps
from exgrpo.jobs.specs.presets import preset_names
from exgrpo_core.errors import UserError
from exgrpo_core.recording.run_status import RunStatus

_MENU, _REFUSAL, _TYPED = "new-sweep", "refused-sweep", "typed-sweep"
_VALUES = "sweep-values-"
_UNTYPED = {"sweep-name": "sweep", "sweep-base": "chains-exgrpo", "sweep-fields": []}


def _sweep_form() -> None:
    menu = st.popover("New sweep", icon=":material/grid_on:", key=_MENU, on_change="rerun")
    # What was typed stays until it is cleared: of fields that are not drawn Streamlit forgets it.
    kept = st.session_state.setdefault(_TYPED, dict(_UNTYPED))
    kept |= {key: value for key, value in st.session_state.items() if str(key).startswith("sweep-")}
    if not menu.open:
        return
    for key, value in kept.items():  # a field that is there is not set again: it would lose what the user types
        st.session_state.setdefault(key, value)
    with menu:
        st.text_input("Name", key="sweep-name", max_chars=31)
        st.selectbox("Starts from", preset_names(), key="sweep-base")
        shapes = fields()
        chosen = st.multiselect(
            "Fields", list(shapes), key="sweep-fields", placeholder="Name or symbol, such as mu", select_all=False,
            format_func=lambda path: shapes[path].found_by, help="All combinations of their values are run",
        )  # fmt: skip
        for path in chosen:
            st.text_input(shapes[path].label, key=f"{_VALUES}{path}", placeholder="values, separated by commas")
        with st.container(horizontal=True):
            st.button("Check and open", type="primary", key="keep-sweep", on_click=_keep)
            st.button("Clear", key="clear-sweep", on_click=_clear)
        if (refusal := st.session_state.pop(_REFUSAL, None)) is not None:
            notice.show("error", "Not a sweep yet", refusal)


def _clear() -> None:
    for key in [*st.session_state.pop(_TYPED)]:
        st.session_state.pop(key, None)


def _written() -> str:
    """Return the sweep that was clicked, as YAML."""
    values = (f"  {path}: [{st.session_state.get(_VALUES + path, '')}]" for path in st.session_state["sweep-fields"])
    return "\n".join((f"base: {st.session_state['sweep-base']}", "over:", *values))


def _keep() -> None:
    # Arguments of the button would lack what was typed right before the click.
    try:
        kept = sweeps.keep_text(settings.runs_root(), st.session_state["sweep-name"].strip(), _written())
    except UserError as error:
        st.session_state[_REFUSAL] = str(error)
        return
    st.session_state[_MENU] = False
    address.put({"study": kept, "cells": None})


VIEWS = ["Runs", "Next to the paper", "What the paper prints"]
VIEWS_WITHOUT_PAPER = ["Runs", "Results"]
REFRESH_SECONDS = 4
DEFAULT_STUDY = "main-table"


def _choices() -> tuple[Study, Scale, int]:
    sweeps, faults = read_sweeps(settings.current().runs_root)
    if faults:
        notice.show("warning", "Sweeps are left out", "\n".join(faults))
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        studies = {name: load_study(name) for name in study_names()} | sweeps
        titles = {name: study.title for name, study in studies.items()}
        is_named = {"study", "scale", "cells"} & {*st.query_params}
        if not is_named and (newest := newest_of_studies(studies)) is not None:
            # It stays the study that the buttons below are of when another one gets a newer run.
            st.query_params.update({"study": newest.study, "scale": newest.scale})
        study = studies[address_choice.select("Study", titles, "study", DEFAULT_STUDY, ["cells"], 380)]
        scale = st.segmented_control(
            "Scale", [scale.value for scale in study.scales], default=study.scales[0].value, required=True, key="scale",
            bind="query-params", help=" \n\n".join(f"**{scale}**: {scale.words}" for scale in Scale),
        )  # fmt: skip
        num_seeds = study_matrix.seeds(study, Scale(scale))
        st.space("stretch")
        _sweep_form()
        return study, Scale(scale), num_seeds


def _runs(study: Study, scale: Scale, keys: Sequence[RunKey]) -> None:
    cells = study_matrix.cell_states(study, keys, study_runs(study.name))
    counts = Counter(state for cell in cells for state in cell.states)
    finished = counts.pop(RunStatus.FINISHED, 0)
    rest = ", ".join(f"{count:,} {state}" for state, count in sorted(counts.items()))
    st.progress(
        finished / len(keys),
        text=f"{finished:,} of {counted(len(keys), 'run')} finished" + (f" · {rest}" if rest else ""),
    )
    compared = study_matrix.one_run_of_each_cell(cells)[: run_choice.MAX_COMPARED]
    if len(compared) > 1:
        st.page_link(
            "app_pages/compare.py", label="Compare the cells", icon=":material/compare_arrows:",
            query_params=run_choice.compared_parameters(compared),
            help="One run of each cell, the first seed that has begun",
        )  # fmt: skip
    study_matrix.show(cells, study.name)
    study_matrix.show_launch(study, scale, cells)


def _next_to_the_paper(study: Study, scale: Scale, keys: Sequence[RunKey]) -> None:
    ended = {key: run.run_id for key, run in study_runs(study.name).items() if run.status == RunStatus.FINISHED}
    finished = tuple(sorted(run_id for key, run_id in ended.items() if key.scale is scale))
    results = read_study_results(study.name, scale, finished)
    study_results.report(results, keys)
    study_results.show(results)


def _show(study: Study, scale: Scale, keys: Sequence[RunKey]) -> None:
    names = VIEWS if number_rows(study) else VIEWS_WITHOUT_PAPER
    views = dict(
        zip(names, (_runs, _next_to_the_paper, lambda study, *_: study_results.show_paper(study)), strict=False)
    )
    name, tab = address_choice.tabs(names, address_choice.PART)
    with tab:
        if keys or name == VIEWS[-1]:
            st.fragment(views[name], run_every=REFRESH_SECONDS if name == VIEWS[0] else None)(study, scale, keys)
        else:
            text = "No cell of this study can run at this scale; see the notes."
            notice.show_empty("science_off", "Not possible at this scale", text)


def show() -> None:
    """Show the chosen study at the chosen scale."""
    study, scale, num_seeds = _choices()
    st.markdown(f"{study.question} :gray[{scale.words}.]")
    if study.notes:
        with st.expander("What to know", icon=":material/info:", key="notes"):
            st.markdown("\n".join(f"- {with_code(note)}" for note in study.notes))
    _show(study, scale, wanted_keys(study, scale, study.cells, num_seeds))
