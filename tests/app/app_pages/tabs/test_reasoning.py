import pytest
import streamlit as st
from sqlalchemy import update

from exgrpo.app.app_pages.tabs import reasoning
from exgrpo.db.connections.opening import open_database
from exgrpo.db.queries.cases import list_case_sets, saved_cases
from exgrpo.db.queries.judging import get_verdicts, list_judges
from exgrpo.db.tables import models
from exgrpo.jobs.evaluation.analysis.case_text import excerpts_of
from exgrpo.jobs.execution.supervisor.indexing import ingest_all, rebuild_index
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from tests.app import judged
from tests.app.charts import figures
from tests.app.page_texts import has_text, tables

pytestmark = pytest.mark.slow

NUM_FIGURES = {"Entropy": 5, "Code": 2, "Over steps": 2}


@pytest.mark.usefixtures("judged_shared")
@pytest.mark.parametrize("view", reasoning.VIEWS)
def test_every_view_is_shown_by_a_judges_verdicts_and_no_text_is_markup(open_page, view):
    query = {"judge": "judge-voted", "trajectory": "10"}
    page = open_page("run", view="Reasoning", run=judged.JUDGED, part=view, **query)
    assert not any("<img" in element.value for element in [*page.markdown, *page.caption])
    assert len(figures(page)) == NUM_FIGURES.get(view, 0)


@pytest.mark.usefixtures("judged_shared")
@pytest.mark.parametrize("view", NUM_FIGURES)
def test_charts_whose_unit_names_an_interval_draw_it_and_values_without_ticks_have_a_title(open_page, view):
    page = open_page("run", view="Reasoning", run=judged.JUDGED, part=view)
    heads = [element.value for element in page.markdown if ":gray[:small[" in element.value]
    assert len(heads) == NUM_FIGURES[view]
    for head, figure in zip(heads, figures(page), strict=True):
        has_interval = any("error_y" in trace for trace in figure["data"])
        assert has_interval >= ("interval" in head), head
        axis = figure["layout"]["yaxis"]
        assert axis.get("showticklabels", True) or axis["title"]["text"] == "density"


def test_tiles_show_the_corrected_rate_only_for_a_calibrated_judge(open_page, judged_runs):
    address = {"run": judged.JUDGED, "part": "Verdicts", "judge": "judge-voted"}
    tiles = {tile.label: tile for tile in open_page("run", view="Reasoning", **address).metric}
    assert tiles["Corrected"].delta == "judge not calibrated"
    # 33 valid (one vote of them taken back by a tie: 32) of 43 with a majority.
    assert tiles["Judged"].value == "43"
    assert tiles["Valid chains"].value == "74.4%"
    judged.calibrate(judged_runs)
    st.cache_data.clear()  # answers are shared for a second
    tiles = {tile.label: tile for tile in open_page("run", view="Reasoning", **address).metric}
    # Rogan-Gladen: (32 / 43 + 0.8 - 1) / (0.9 + 0.8 - 1) = 0.7774.
    assert tiles["Corrected"].value == "77.7%"
    oracle = open_page("run", view="Reasoning", run=judged.JUDGED, part="Verdicts")
    assert {tile.label: tile.delta for tile in oracle.metric}["Corrected"] == "the oracle is exact"


def test_a_users_verdict_goes_through_the_journal_and_survives_a_rebuild(open_page, judged_runs):
    page = open_page("run", view="Reasoning", run=judged.JUDGED, part="Verdicts", judge="judge-voted", trajectory="6")
    assert has_text(page, "Trajectory 6")
    assert has_text(page, "judge, vote 1")
    page.segmented_control(key=f"override-{judged.JUDGED}-1-6").set_value("not valid").run()
    entry = Journal(judged_runs).entries()[-1]
    assert (entry.kind, entry.data) == (
        JournalKind.VERDICT_SET, {"attempt": 1, "trajectory_id": 6, "is_valid": False},
    )  # fmt: skip
    ingest_all(judged_runs, None)
    rebuild_index(judged_runs, None)
    database = open_database(None, judged_runs)
    row = get_verdicts(database, judged.JUDGED, 6, "judge-voted")
    database.close()
    assert (row.by_judge, row.user) == (True, False)
    page = open_page("run", view="Reasoning", run=judged.JUDGED, part="Judges", judge="judge-voted")
    agreement = tables(page)[1].value.set_index("With")
    assert agreement.loc["users", "Valid by the judge only"] == 1


def test_the_form_queues_a_judge_of_the_oracle_or_of_a_server(open_page, judged_runs):
    page = open_page("run", view="Reasoning", run="thoughts-running", part="Judges")
    page.number_input(key="judge-limit").set_value(5)
    next(element for element in page.button if element.label == "Start judge run").click().run()
    job_id = Journal(judged_runs).entries()[-1].run_id
    spec = RunDirectory.open(judged_runs, job_id).job_spec()
    assert (spec.judge, spec.judged.run_id, spec.judged.limit) == ("oracle", "thoughts-running", 5)
    page.segmented_control(key="judge-kind").set_value("server").run()
    page.text_input(key="judge-address").set_value("http://127.0.0.1:9/v1")
    page.number_input(key="judge-tokens").set_value(4000)
    next(element for element in page.button if element.label == "Start judge run").click().run()
    spec = RunDirectory.open(judged_runs, Journal(judged_runs).entries()[-1].run_id).job_spec()
    assert (spec.server.model, spec.server.max_total_tokens) == ("Qwen/Qwen3-32B", 4000)
    ingest_all(judged_runs, None)
    database = open_database(None, judged_runs)
    assert {job.max_total_tokens for job in list_judges(database, "thoughts-running")} == {None, 4000}
    database.close()


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


def test_any_trajectory_is_kept_as_a_case_next_to_the_opposite_verdict_or_alone(open_page, judged_runs):
    # In question 1 of the first step, 5 is valid at an entropy of 0.2 and 6 is not valid at 0.3.
    page = open_page("run", view="Trajectories", run=judged.JUDGED, trajectory="6")
    assert [badge for badge in ("not valid", "not judged") if has_text(page, badge)] == ["not valid"]
    for alone in (False, True):
        page.session_state["case-menu"] = True
        page.run()
        if alone:
            page.selectbox(key="case-with-6").set_value(6).run()
        page.text_input(key="set-of-trajectory").set_value("odd").run()
        page.button(key="mark-of-trajectory").click().run()
        assert not page.exception
    ingest_all(judged_runs, None)
    database = open_database(None, judged_runs)
    pair, single = saved_cases(database, "odd")
    database.close()
    assert (pair.low.is_valid, pair.low.entropy < 0.25, pair.high.trajectory_id) == (True, True, 6)
    assert [response.trajectory_id for response in single.responses.values()] == [6]
    assert [heading for heading, _ in excerpts_of([single])[0].texts][2:] == [
        "Response, entropy 0.3000 nats per token, chain of thought invalid, without code, trajectory 6"
    ]
    saved = open_page("run", view="Reasoning", run=judged.JUDGED, part="Saved cases", set="odd")
    assert not saved.exception
    assert has_text(saved, "2 cases of 1 run")
