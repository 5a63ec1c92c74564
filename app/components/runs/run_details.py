"""A run's attempts, checkpoints and configuration."""

from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from app.components.widgets import empty_state, exports, status_badge
from app.components.widgets.spec_text import as_yaml, differences, option_text
from app.formats import byte_size, escape_control_characters, exact
from db.rows.runs import AttemptRow, CheckpointRow, RunRow
from db.rows.spec_fields import UNKNOWN


def show_attempts(row: RunRow, attempts: Sequence[AttemptRow], checkpoints: Sequence[CheckpointRow]) -> None:
    """Show a job's attempts, newest first, and of a training run the checkpoints that are kept."""
    _section("Attempts", attempt_table(attempts))
    if not attempts:
        empty_state.show("history", "No attempt yet", "The run waits in the queue.")
    if row.kind != "train":
        return
    _section("Checkpoints", checkpoint_table(checkpoints))
    if not checkpoints:
        empty_state.show("save", "No checkpoint yet", "The first one is written at the checkpoint interval.")
        return
    st.caption("This writes a checkpoint's model as a folder that transformers and vLLM load:")
    st.code(f"exgrpo export {row.run_id}@{checkpoints[-1].step} FOLDER", language=None)


def _section(title: str, rows: pd.DataFrame) -> None:
    exports.show_heading(title, rows, title.lower())
    if not rows.empty:
        st.dataframe(rows, hide_index=True, alt=f"{title} of the run")


def attempt_table(attempts: Sequence[AttemptRow]) -> pd.DataFrame:
    """Return the table of attempts."""
    newest_first = list(attempts)[::-1]
    return pd.DataFrame(
        {
            "Attempt": [row.attempt for row in newest_first],
            "State": [status_badge.state_name(row.status) for row in newest_first],
            "Resumed from step": [
                "start" if row.resumed_from_step is None else f"{row.resumed_from_step:,}" for row in newest_first
            ],
            "Started": [exact(row.started_at) for row in newest_first],
            "Ended": [exact(row.ended_at) for row in newest_first],
            "Reason": [escape_control_characters(row.status_reason) for row in newest_first],
        }
    )


def checkpoint_table(checkpoints: Sequence[CheckpointRow]) -> pd.DataFrame:
    """Return the table of checkpoints."""
    return pd.DataFrame(
        {
            "Step": [row.step for row in checkpoints],
            "Size": [byte_size(row.num_bytes) for row in checkpoints],
            "Written": [exact(row.at) for row in checkpoints],
            "Path in the run directory": [escape_control_characters(row.path) for row in checkpoints],
        }
    )


def show_configuration(spec: Mapping[str, object], base: Mapping[str, object], base_name: str) -> None:
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
