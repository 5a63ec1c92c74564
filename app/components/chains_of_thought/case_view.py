"""Snowball cases side by side as in the paper, and saved sets of them with downloads."""

from collections.abc import Mapping, Sequence

import streamlit as st

from exgrpo.app.components.widgets import address_choice, cases, data_table, figures, notice, shown_text
from exgrpo.app.formats import badge_label, counted, nats
from exgrpo.app.queries.answers import ask
from exgrpo.db.queries.cases import list_case_sets, saved_cases
from exgrpo.db.rows.chains_of_thought import CaseResponse, SavedCase, SnowballCase
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.evaluation.analysis.case_text import cases_as_json, excerpts_of

_TEXT_HEIGHT = 420
_LONG_TEXT, _LONG_LINES = 1_200, 16


def show(case: SnowballCase, sets: Sequence[str], key: str) -> None:
    """Show one case with the buttons that add it to a set or remove it."""
    with st.container(border=True, gap="small", key=f"case-{key}"):
        with st.container(horizontal=True, vertical_alignment="center", gap="small"):
            st.markdown(f"**Question {case.question_index}**, {case.steps}", width="content")
            for name in sets:
                st.badge(badge_label(name), icon=":material/bookmark:", color="gray")
            st.space("stretch")
            shown_text.export_for_paper("Snowball case", excerpts_of([case]), f"case-{key}")
            with st.popover(
                "Keep", icon=":material/bookmark_add:", type="tertiary", key=f"keep-{key}", help="Mark this case"
            ):
                cases.show_keep(case.saved, sets, key)
        left, right = st.columns([3, 1], gap="medium")
        with left:
            st.caption("Question")
            shown_text.show_raw(case.question)
        with right:
            st.caption("Gold answer")
            shown_text.show_raw(case.truth)
        columns = st.columns(len(case.responses), gap="medium")
        for column, (end, response) in zip(columns, case.responses.items(), strict=True):
            with column:
                _response(case, end.capitalize(), response, key)


def show_all(shown: Sequence[SnowballCase], sets: Mapping[SavedCase, Sequence[str]], key: str) -> None:
    """Show cases one under the other."""
    for case in shown:
        saved = case.saved
        case_key = f"{saved.run_id}-{saved.attempt}-{saved.low_trajectory_id}-{saved.high_trajectory_id}"
        show(case, sets.get(saved, ()), f"{key}-{case_key}")


def _response(case: SnowballCase, end: str, response: CaseResponse, key: str) -> None:
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        title = f"{end} entropy" if len(case.responses) > 1 else "Entropy"
        st.markdown(f"**{title}** &nbsp; {nats(response.entropy)} nats", width="content")
        cases.verdict_badge(response.is_valid)
        if response.has_code:
            st.badge("code", icon=":material/code:", color="gray")
        st.space("stretch")
        if st.button(
            f"Trajectory {response.trajectory_id}", icon=":material/open_in_new:", type="tertiary",
            key=f"open-{key}-{end}", help="Its tokens, lineage and group",
        ):  # fmt: skip
            address_choice.open_trajectory(case.run_id, response.trajectory_id)
    is_long = len(response.text) > _LONG_TEXT or response.text.count("\n") > _LONG_LINES
    with st.container(height=_TEXT_HEIGHT if is_long else "content", border=False, key=f"text-{key}-{end}"):
        shown_text.show_long(response.text)


def show_sets(_row: RunRow, _judge: str | None) -> None:
    """Show the choice of a set, which is in the address, its files and its cases."""
    rows = ask(list_case_sets)
    if not rows:
        notice.show_empty("bookmark", "No saved cases", "Keep a case under **Cases**; sets are kept with the runs.")
        return
    names = {row.name: f"{row.name} ({row.num_cases})" for row in rows}
    name = address_choice.select("Set", names, "set", rows[0].name, width=320)
    kept = ask(saved_cases, name)
    num_left = sum(row.num_cases for row in rows if row.name == name) - len(kept)
    left = f" · {counted(num_left, 'case')} of repeated steps: only the files have them" if num_left else ""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        num_runs = len({case.run_id for case in kept})
        st.caption(f"{counted(len(kept), 'case')} of {counted(num_runs, 'run')}{left}", width="content")
        st.space("stretch")
        file_name = figures.file_name(name) or "cases"
        title = f"Snowball cases: {name}"
        formats = {
            **shown_text.PAPER_FORMATS,
            "JSON": ("json", "application/json", lambda _: cases_as_json(title, kept)),
        }
        data_table.export(lambda: (title, excerpts_of(kept)), file_name, "case-set", formats=formats)
    show_all(kept, {case.saved: (name,) for case in kept}, "saved")
