import pytest
import streamlit as st

from exgrpo.jobs.execution.supervisor.indexing import ingest_all, rebuild_index
from exgrpo.jobs.runs.journal import Journal, JournalKind
from tests.app.page_texts import has_text, tables

pytestmark = pytest.mark.slow


def test_a_mark_goes_through_the_journal_survives_a_rebuild_and_can_be_taken_off(open_page, played_runs):
    address = {"run": "play-finished", "trajectory": "3"}
    page = open_page("run", view="Trajectories", **address)
    page.text_input(key="mark-name").set_value(" odd *reasoning* ")
    page.text_area(key="mark-comment").set_value("skips a step")
    page.button(key="keep-mark").click().run()
    assert not page.exception
    entry = Journal(played_runs).entries()[-1]
    marked = {"attempt": 1, "trajectory_id": 3, "mark": "odd *reasoning*"}
    assert (entry.kind, entry.data) == (JournalKind.TRAJECTORY_MARKED, marked | {"comment": "skips a step"})
    ingest_all(played_runs, None)
    rebuild_index(played_runs, None)

    st.cache_data.clear()  # answers are shared for a second
    page = open_page("run", view="Trajectories", marked="odd *reasoning*", **address)
    assert not page.exception
    assert has_text(page, r"**Marked: odd \*reasoning\***")
    listed = tables(page)[0].value
    assert (list(listed["Trajectory"]), list(listed["Comment"])) == ([3], ["skips a step"])
    page.button(key="unmark-odd *reasoning*").click().run()
    assert Journal(played_runs).entries()[-1].kind is JournalKind.TRAJECTORY_UNMARKED
    ingest_all(played_runs, None)
    st.cache_data.clear()
    page = open_page("run", view="Trajectories", marked="odd *reasoning*", **address)
    assert not page.exception
    assert not has_text(page, "Marked:")
