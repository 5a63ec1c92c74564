import pytest

from exgrpo.app.app_pages.tabs import buffer, reasoning
from exgrpo.app.components.paper import run_figures
from exgrpo.app.components.paper.entries import BY_KEY, ENTRIES
from exgrpo.app.components.paper.printed_figures import rows_of, tables_of
from exgrpo.app.page_list import PAGES
from exgrpo.jobs.actions.studies.definition import load_study, study_names

pytestmark = pytest.mark.slow

BY_NAME = {page.name: page for page in PAGES}
PARTS = {"Buffer": buffer.VIEWS, "Reasoning": reasoning.VIEWS}


def test_every_printed_table_of_the_studies_has_an_entry():
    printed = {table.name for name in study_names() for table in load_study(name).tables}
    assert len(list(tables_of(BY_KEY["ablations"]))) == 2
    # Overheads in percent are no bars.
    assert [row.value for row in rows_of(BY_KEY["overhead"])] == [155.38, 184.92, 185.0, 188.85]
    assert printed == {entry.table for entry in ENTRIES if entry.table}


def test_every_view_that_a_link_opens_is_a_view_of_its_page():
    links = [(home.page, dict(home.query)) for entry in ENTRIES for home in entry.homes]
    links += [("run", dict(box.query)) for box in run_figures.BOXES]
    for page, query in links:
        assert query.get("view", "") in (*BY_NAME[page].tabs, "")
        assert "part" not in query or query["part"] in PARTS[query["view"]]
        assert "study" not in query or query["study"] in study_names()
