"""Benchmark scores next to the paper's: across backbones, methods and checkpoints, and two of them compared."""

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.components.benchmarks import (
    evaluation_form,
    score_comparison,
    score_curves,
    score_table,
    score_table_view,
)
from exgrpo.app.components.benchmarks.samples import SCHEMES
from exgrpo.app.components.widgets import address_choice, notice
from exgrpo.app.formats import counted
from exgrpo.app.queries.answers import ask
from exgrpo.app.queries.benchmarks import list_scores
from exgrpo.db.queries import runs
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo_core.recording.run_status import LIVE, RunStatus

MAX_LINES = 60
REFRESH_SECONDS = 5
_SHOWN = {
    "running or queued": (LIVE, "hourglass_top", "Active"),
    "failed or lost": ((RunStatus.FAILED, RunStatus.LOST), "error", "Failed or lost"),
}
"""States of evaluations without scores: statuses, icon, and the state by which the list of runs has them."""


def _controls() -> tuple[str, list[str], str]:
    titles = score_table.printed_tables()
    with st.container(horizontal=True, vertical_alignment="bottom", gap="medium"):
        scheme = st.segmented_control(
            "Scored by", list(SCHEMES), default="paper", required=True, key="scheme", bind="query-params",
            help=" \n\n".join(f"**{name}**: {text}" for name, text in SCHEMES.items()),
        )  # fmt: skip
        tables = address_choice.select_several("The paper's tables", titles, "tables", ["main-table"], "None")
        words = st.text_input(
            "Your models", key="models", bind="query-params", placeholder="Search name, method, backbone",
            icon=":material/search:", width=260,
        )  # fmt: skip
    return scheme, tables, words.strip().lower()


def _wait_for_scores(num_scores: int, scheme: str) -> None:
    """Show how many evaluations are under way or failed, with links; the page reruns when there are new scores."""
    if len(list_scores(scheme)) != num_scores:
        st.rerun(scope="app")
    counts = ask(runs.count_runs, RunFilter(kinds=("eval",)))
    for text, (statuses, icon, state) in _SHOWN.items():
        if number := sum(counts.get(status, 0) for status in statuses):
            label, query = f"{counted(number, 'evaluation')} {text}", {"kind": "Evaluations", "state": state}
            st.page_link("app_pages/runs.py", label=label, icon=f":material/{icon}:", query_params=query)


def _scores(scheme: str, tables: list[str], words: str) -> None:
    rows = list_scores(scheme)
    found = ((line, f"{line.group} {line.name}".lower()) for line in score_table.measured_lines(rows))
    measured_lines = [line for line, text in found if all(word in text for word in words.split())]
    newest_lines = measured_lines[:MAX_LINES]
    papers = score_table.with_columns([*newest_lines, *score_table.printed_lines(tables)], score_table.COLUMNS)
    lines = score_table.rank(papers)
    if not rows:
        notice.show_empty(
            "leaderboard", "No scores yet",
            "Press **Score models** above, or score a checkpoint from a terminal. Below are the paper's numbers.",
            "exgrpo eval RUN@last -b math500",
        )  # fmt: skip
    elif not measured_lines:
        notice.show_empty("filter_alt_off", "No model matches", "Clear the search.")
    titles = score_table.user_columns(rows)
    if own := score_table.with_columns(newest_lines, titles):
        st.subheader("Your benchmarks", anchor=False)
        score_table_view.show_user_benchmarks(score_table.rank(own, titles), titles)
    if lines:
        score_table_view.show(lines, "scores")
    if len(measured_lines) > MAX_LINES:
        st.caption(f"The newest {MAX_LINES} of {len(measured_lines):,} of your models; search for others.")
    if len(measured_lines) > 1:
        st.subheader("Compare two", anchor=False)
        score_comparison.show(measured_lines, scheme)
    if measured_lines:
        st.subheader("Over the number of answers", anchor=False)
        score_curves.show(measured_lines, scheme)


with st.container(horizontal=True, vertical_alignment="center", horizontal_alignment="distribute"):
    st.title("Benchmarks", anchor=False, width="content")
    if not settings.current().is_view:
        evaluation_form.show_button()
st.caption("Scores of your checkpoints and models next to those that the paper printed, over backbones.")
if evaluation_form.ADDRESS in st.query_params and not settings.current().is_view:
    evaluation_form.show()
chosen_scheme, chosen_tables, searched = _controls()
st.fragment(_wait_for_scores, run_every=REFRESH_SECONDS)(len(list_scores(chosen_scheme)), chosen_scheme)
_scores(chosen_scheme, chosen_tables, searched)
