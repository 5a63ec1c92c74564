"""The configuration of a run."""

from collections.abc import Mapping

import pandas as pd
import streamlit as st

from app.components.widgets import exports
from app.components.widgets.spec_text import as_yaml, differences, option_text
from app.formats import escape_control_characters
from db.rows.adopted_runs import UNKNOWN
from db.rows.runs import RunRow


def show(spec: Mapping[str, object], base: Mapping[str, object], base_name: str) -> None:
    """Show the differences from the preset the run started from, then the whole specification as YAML."""
    changes = differences(base, spec)
    st.subheader(f"Differences from {base_name}", anchor=False)
    if changes:
        rows = pd.DataFrame(
            {
                "Field": [change.path for change in changes],
                base_name.capitalize(): [escape_control_characters(option_text(change.before)) for change in changes],
                "This run": [escape_control_characters(option_text(change.after)) for change in changes],
            }
        )
        st.dataframe(rows, hide_index=True, alt=f"Fields that differ from {base_name}")
        exports.show(rows, "configuration-differences")
    else:
        st.caption("None: the run uses it unchanged.")
    show_whole(spec)


def show_adopted(row: RunRow) -> None:
    """Show what an adopted run's dumps say of its configuration, which is little."""
    facts = {"Engine": row.engine, "Model": row.model, "Rollout dumps": row.dataset, "Newest step": f"{row.step:,}"}
    rows = {
        "Field": [*facts, "All other settings"],
        "Value": [*map(escape_control_characters, facts.values()), UNKNOWN],
    }
    st.dataframe(pd.DataFrame(rows), hide_index=True, alt="What is known of the run's configuration")


def show_whole(spec: Mapping[str, object]) -> None:
    """Show the whole specification as YAML."""
    with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
        st.subheader("Whole specification", anchor=False, width="content")
        text = as_yaml(spec)
        st.download_button(
            "Download YAML",
            text,
            file_name="run.yaml",
            mime="application/yaml",
            icon=":material/download:",
            on_click="ignore",
            key="spec-download",
        )
    st.code(escape_control_characters(text), language="yaml", height=480)
