import pytest
from sqlalchemy import update

from db.connections.opening import open_database
from db.queries.cases import list_case_sets, saved_cases
from db.tables import models
from jobs.execution.supervisor.open_index import ingest_all, rebuild_index
from jobs.runs.journal import Journal, JournalKind
from tests.app import judged
from tests.app.charts import figures
from tests.app.page_texts import has_text

pytestmark = pytest.mark.slow

VIEWS = ["Code", "Over steps", "Cases", "Saved cases"]


@pytest.mark.usefixtures("judged_shared")
@pytest.mark.parametrize("view", VIEWS)
def test_every_view_is_shown_and_no_text_is_markup(open_page, view):
    page = open_page("run", view="Reasoning", run=judged.JUDGED, part=view)
    assert not any("<img" in element.value for element in [*page.markdown, *page.caption])
    assert len(figures(page)) == 2 or view not in VIEWS[:2]


def test_the_mean_of_a_very_long_run_is_over_the_most_steps_there_may_be(open_page, judged_runs):
    database = open_database(None, judged_runs)
    long = update(models.runs).where(models.runs.c.run_id == judged.JUDGED).values(step=24_000)
    database.write(lambda connection: connection.execute(long))
    database.close()
    page = open_page("run", view="Reasoning", run=judged.JUDGED, part="Over steps")
    assert page.number_input(key="window").value == 1000


def test_a_marked_case_is_kept_in_its_set_and_comes_back_after_a_rebuild(open_page, judged_runs):
    page = open_page("run", view="Reasoning", run=judged.JUDGED, part="Cases")
    next(element for element in page.text_input if element.key.startswith("set-cases")).set_value("my set").run()
    next(element for element in page.button if element.key.startswith("mark-cases")).click().run()
    entry = Journal(judged_runs).entries()[-1]
    assert (entry.kind, entry.data["case_set"]) == (JournalKind.CASE_MARKED, "my set")
    ingest_all(judged_runs, None)
    rebuild_index(judged_runs, None)
    database = open_database(None, judged_runs)
    assert [(row.name, row.num_cases) for row in list_case_sets(database)] == [("my set", 1)]
    [case] = saved_cases(database, "my set")
    database.close()
    assert (case.run_id, case.low.is_valid, case.high.is_valid) == (judged.JUDGED, True, False)
    saved = open_page("run", view="Reasoning", run=judged.JUDGED, part="Saved cases")
    assert has_text(saved, "1 case of 1 run")
    saved.session_state["export-case-set"] = True
    saved.run()
    assert {element.label for element in saved.get("download_button")} == {"LaTeX", "Markdown", "JSON"}
