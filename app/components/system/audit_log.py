"""What users did, newest first, as recorded in the journal."""

import json
from collections.abc import Mapping, Sequence

import pandas as pd
import streamlit as st

from app.components.widgets import empty_state, exports
from app.formats import escape_control_characters
from app.requests import JournalEntry

PAGE_SIZE = 50
WORDS = {
    "submitted": "queued a job",
    "resume_asked": "requested resume",
    "stop_asked": "requested stop",
    "tagged": "tagged",
    "untagged": "untagged",
    "noted": "wrote a note",
    "archived": "archived",
    "unarchived": "unarchived",
    "renamed": "renamed",
    "deleted": "moved to the bin",
    "restored": "took out of the bin",
    "removed": "removed for good",
    "imported": "imported",
    "case_marked": "saved a case",
    "case_unmarked": "removed a case",
    "verdict_set": "gave a verdict",
    "verdict_cleared": "removed a verdict",
    "trajectory_marked": "marked a trajectory",
    "trajectory_unmarked": "removed a mark",
    "cluster_added": "added a cluster",
    "cluster_tested": "tested a cluster",
    "cluster_removed": "removed a cluster",
}


def show(entries: Sequence[JournalEntry], names: Mapping[str, str]) -> None:
    """Show a page of the entries, given oldest first; the page's number is in the address."""
    if not entries:
        empty_state.show("history", "No entries yet", "Every launch, stop, tag and note is recorded here.")
        return
    num_pages = -(-len(entries) // PAGE_SIZE)
    page = 1
    if num_pages > 1:
        page = int(
            st.number_input(f"Page of {num_pages:,}", 1, num_pages, key="log-page", bind="query-params", width=140)
        )
    newest_first = list(reversed(entries))
    frame = table(newest_first[(page - 1) * PAGE_SIZE : page * PAGE_SIZE], names)
    st.dataframe(frame, hide_index=True, key="audit-log", alt="What users did, newest first")
    exports.show(lambda: table(newest_first, names), "audit-log")


def table(entries: Sequence[JournalEntry], names: Mapping[str, str]) -> pd.DataFrame:
    """Return one row per entry; a run that the database does not know is named by its id."""
    return pd.DataFrame(
        {
            "When, UTC": [entry.at[:19].replace("T", " ") for entry in entries],
            "Who": [escape_control_characters(entry.by) for entry in entries],
            "What": [WORDS.get(str(entry.kind), str(entry.kind).replace("_", " ")) for entry in entries],
            "Run": [escape_control_characters(names.get(entry.run_id, entry.run_id)) for entry in entries],
            "Run id": [escape_control_characters(entry.run_id) for entry in entries],
            "Details": [escape_control_characters(_in_words(entry.data)) for entry in entries],
        }
    )


def _in_words(data: Mapping[str, object]) -> str:
    return ", ".join(
        f"{name.replace('_', ' ')} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in data.items()
    )
