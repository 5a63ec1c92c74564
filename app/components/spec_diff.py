"""What a form changes against a preset, or against any earlier run."""

import pandas as pd
import streamlit as st

from app import queries
from app.commands import TrainSpec
from app.components import exports
from app.components.spec_text import differences, shown
from app.formats import inert
from db.shown_names import distinct_names

_KEY = "diff-choice"
_ADDRESS = "against"


def show(spec: TrainSpec, base: TrainSpec, base_name: str) -> None:
    """Show the fields that differ from the chosen one; the choice is in the address."""
    rows = queries.list_runs(queries.TRAINING_RUNS)
    names = {"": base_name} | {
        run_id: f"run {name}" for run_id, name in distinct_names((row.run_id, row.name) for row in rows).items()
    }
    wanted = st.query_params.get(_ADDRESS, "")
    st.session_state[_KEY] = wanted if wanted in names else ""
    st.selectbox(
        "Differences from",
        list(names),
        format_func=lambda run_id: inert(names[run_id]),
        key=_KEY,
        on_change=_choose,
    )
    chosen = st.session_state[_KEY]
    before = queries.run_spec(chosen) if chosen else base.model_dump(mode="json")
    found = differences(before, spec.model_dump(mode="json"))
    if not found:
        st.caption("None.")
        return
    table = pd.DataFrame(
        {
            "Field": [change.path for change in found],
            "There": [inert(shown(change.before)) for change in found],
            "Here": [inert(shown(change.after)) for change in found],
        }
    )
    st.dataframe(table, hide_index=True, key="spec-differences", alt=f"Fields that differ from {names[chosen]}")
    exports.show(table, "differences")


def _choose() -> None:
    chosen = st.session_state[_KEY]
    if chosen:
        st.query_params[_ADDRESS] = chosen
    else:
        st.query_params.pop(_ADDRESS, None)
