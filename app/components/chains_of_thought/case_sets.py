"""Saved sets of snowball cases, one at a time, with downloads."""

from collections.abc import Sequence

import streamlit as st

from app import address
from app.components.chains_of_thought import case_view, thought_statistics
from app.components.widgets import empty_state, figures
from app.formats import escape_control_characters
from app.queries.answers import ask
from db.queries.cases import list_case_sets, saved_cases
from db.rows.cases import CaseSetRow, SnowballCase


def show() -> None:
    """Show the choice of a set, which is in the address, its files and its cases."""
    rows = ask(list_case_sets)
    if not rows:
        empty_state.show("bookmark", "No saved cases", "Keep a case under **Cases**; sets are kept with the runs.")
        return
    name = _choose(rows)
    cases = ask(saved_cases, name)
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        runs = len({case.run_id for case in cases})
        caption = f"{len(cases):,} case{_s(len(cases))} of {runs:,} run{_s(runs)}"
        st.caption(caption, width="content")
        st.space("stretch")
        _downloads(name, cases)
    case_view.show_all(cases, {case.saved: (name,) for case in cases}, "saved")


def _choose(rows: Sequence[CaseSetRow]) -> str:
    names = {row.name: row for row in rows}
    address.restore()
    wanted = st.query_params.get("set")
    chosen = wanted if wanted in names else rows[0].name
    st.session_state["case-set"] = chosen
    st.selectbox(
        "Set",
        list(names),
        format_func=lambda name: f"{escape_control_characters(name)} ({names[name].num_cases})",
        key="case-set",
        on_change=lambda: address.put({"set": st.session_state["case-set"]}),
        width=320,
    )
    return chosen


def _downloads(name: str, cases: Sequence[SnowballCase]) -> None:
    for label, ending, mime, written in (
        ("Markdown", "md", "text/markdown", thought_statistics.cases_as_markdown),
        ("JSON", "json", "application/json", thought_statistics.cases_as_json),
    ):
        st.download_button(
            label,
            written(name, cases),
            file_name=f"{figures.file_name(name) or 'cases'}.{ending}",
            mime=mime,
            on_click="ignore",
            icon=":material/download:",
            key=f"cases-{ending}",
        )


def _s(count: int) -> str:
    return "" if count == 1 else "s"
