"""What a form changes against a preset, or against any earlier run."""

import pandas as pd
import streamlit as st

from app import address
from app.components.widgets import exports, typed_run
from app.components.widgets.spec_text import differences, option_text
from app.formats import escape_control_characters
from app.queries.answers import ask
from app.queries.runs import training_names
from app.requests import TrainSpec
from db.queries import runs
from db.rows.display_names import distinct_names

_KEY = "diff-choice"
_ADDRESS = "against"


def show(spec: TrainSpec, base: TrainSpec, base_name: str) -> None:
    """Show the fields that differ from the chosen one; the choice is in the address."""
    wanted = st.query_params.get(_ADDRESS, "")
    other = ask(runs.get_run, wanted) if wanted else None
    rows = {row.run_id: row.name for row in training_names()}
    if other is not None and other.kind == "train":
        rows.setdefault(other.run_id, other.name)
    names = {"": base_name} | {run_id: f"run {name}" for run_id, name in distinct_names(rows.items()).items()}
    st.session_state[_KEY] = wanted if wanted in names else ""
    st.selectbox(
        "Differences from",
        list(names),
        format_func=typed_run.label_by(names),
        key=_KEY,
        on_change=_choose,
        args=(list(names),),
        accept_new_options=True,
        placeholder=typed_run.PLACEHOLDER,
    )
    chosen = wanted if wanted in names else ""
    before = ask(runs.run_spec, chosen) if chosen else base.model_dump(mode="json")
    changes = differences(before, spec.model_dump(mode="json"))
    if not changes:
        st.caption("None.")
        return
    table = pd.DataFrame(
        {
            "Field": [change.path for change in changes],
            "Other run" if chosen else "Preset": [
                escape_control_characters(option_text(change.before)) for change in changes
            ],
            "This run": [escape_control_characters(option_text(change.after)) for change in changes],
        }
    )
    st.dataframe(table, hide_index=True, key="spec-differences", alt=f"Fields that differ from {names[chosen]}")
    exports.show(table, "differences")


def _choose(offered: list[str]) -> None:
    chosen = typed_run.find(st.session_state[_KEY] or "", offered)
    if chosen is not None:
        address.put({_ADDRESS: chosen or None})
