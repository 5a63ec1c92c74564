from dataclasses import replace

import pytest

from exgrpo.app.components.paper.entries import ENTRIES
from exgrpo.app.components.paper.run_selection import demo_rows
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.actions.studies.definition import RunKey, Scale, load_study
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from tests.app import recorded
from tests.app.charts import figures
from tests.app.page_texts import has_text, texts
from tests.jobs.actions.studies.recorded import record_run

pytestmark = pytest.mark.slow


def labels(page):
    return [button.label for button in page.button]


@pytest.mark.parametrize("query", [{}, {"figure": "no such"}])
def test_index_lists_every_figure_and_table_in_order_and_draws_no_chart(open_page, query):
    page = open_page("methods", view="Paper", **query)
    assert has_text(page, "The address asks for figure=no such") is bool(query)
    assert labels(page) == [f"**{entry.label}** {entry.title}" for entry in ENTRIES]
    assert {entry.finding for entry in ENTRIES} <= set(texts(page))
    assert not figures(page)


def test_a_card_opens_its_entry_and_leads_back_and_on(open_page):
    page = open_page("methods", view="Paper")
    page.button(key="paper-open-ablations").click().run()
    assert page.query_params["figure"] == "ablations"
    assert "Table 6: Ablations" in texts(page)
    page.button(key="paper-next").click().run()
    assert page.query_params["figure"] == "shaping-entropy"
    page.button(key="back").click().run()
    assert "figure" not in page.query_params


@pytest.mark.usefixtures("recorded_shared")
def test_chosen_runs_are_drawn_and_followed_to_the_page_where_the_figure_lives(open_page):
    page = open_page(
        "methods", view="Paper", figure="shaping-entropy", beside="Chosen runs", runs="run-finished,run-on-policy"
    )
    assert len(figures(page)) == 1
    compare = next(link for link in page.get("page_link") if link.proto.label == "Compare")
    assert "runs=run-finished%2Crun-on-policy" in compare.proto.query_string
    method = open_page("methods", view="Paper", figure="method", beside="Chosen runs", runs="run-finished")
    links = {link.proto.label: link.proto.query_string for link in method.get("page_link")}
    assert links["**Medium first**: p ∝ N(Acc; 0.5, 1)"] == "view=Step&run=run-finished"


def demo_of(runs_root, *runs, tagged):
    """Record runs, the newest first. `exgrpo demo` started some of them."""
    recorded.record(runs_root, *runs)
    for run in tagged:
        run_actions.tag(runs_root, run.run_id, run_actions.DEMO_TAG)
    with open_fresh_index(runs_root, None):
        return [row.run_id for row in demo_rows()]


def test_the_demo_is_what_the_demo_started_not_newer_runs_of_its_presets(runs_root):
    half, seed = (replace(recorded.FINISHED, run_id=run_id) for run_id in ("run-half", "run-seed-1"))
    other = replace(recorded.ON_POLICY, run_id="run-other")
    runs = half, seed, other, recorded.ON_POLICY, recorded.FINISHED
    assert demo_of(runs_root, *runs, tagged=runs[3:]) == ["run-finished", "run-on-policy"]
    copy = run_actions.spec_of_copy(runs_root, "run-finished")
    assert copy.tags == ()


def test_a_run_that_has_not_finished_serves_as_the_demo_where_no_other_has(runs_root):
    runs = recorded.QUEUED, recorded.RUNNING, recorded.FINISHED
    assert demo_of(runs_root, *runs, tagged=runs[:2]) == ["run-running"]


def test_a_study_is_beside_its_figure_with_one_finished_run_of_each_cell(runs_root, open_page):
    study = load_study("ablations")
    for cell, seed in (("exgrpo", 0), ("exgrpo", 1), ("without-shaping", 0)):
        record_run(runs_root, study, RunKey("ablations", Scale.CHAINS, cell, seed), num_correct=5)
    with open_fresh_index(runs_root, None):
        pass
    page = open_page("methods", view="Paper", figure="variants", beside="The study's runs")
    legend = [button.label for button in page.button if (button.key or "").startswith("legend-")]
    assert sorted(legend) == ["ablations exgrpo seed 0", "ablations without-shaping seed 0"]
