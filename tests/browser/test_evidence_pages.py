import re

import pytest

from jobs.runs.directory import list_run_directories
from jobs.studies.matrix import key_from_tags
from tests.app import recorded, scored, web_server
from tests.browser.clicks import click_until
from tests.browser.downloads import download

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    """A folder with scored checkpoints and evaluations in every state."""
    root = tmp_path_factory.mktemp("evidence")
    scored.record_all(root)
    scored.record_unfinished(root)
    recorded.beat(root, recorded.datetime.now(recorded.UTC))
    return root


@pytest.fixture(scope="module")
def workbench(runs_root):
    served = web_server.start(runs_root)
    yield served
    served.stop()


def test_scores_lead_to_the_run_and_come_as_latex(open_page):
    watched = open_page("/benchmarks")
    page = watched.page
    page.get_by_text("12 of 30 questions").wait_for()
    page.get_by_role("button", name="Export").first.click()
    text, _ = download(page, "LaTeX")
    assert "\\multicolumn{7}{c}{In-distribution}" in text
    assert "\\textbf{" in text
    page.keyboard.press("Escape")
    page.get_by_role("link", name="ExGRPO: exgrpo whole, step 30").click()
    page.wait_for_url(re.compile(r"/run\?run=run-finished"))
    page.get_by_text("exgrpo whole").first.wait_for()
    page.go_back()
    page.get_by_text("In-distribution").wait_for()
    assert watched.errors == []


def test_pasted_link_shows_both_answers_and_back_closes_them(open_page):
    watched = open_page("/benchmarks?first=eval-early&second=eval-late&on=math500", color_scheme="dark")
    page = watched.page
    page.get_by_text("200 won, 0 lost").wait_for()
    click_until(page, 60, 50, "item=q100", table=1)
    page.get_by_text("so \\boxed{1}").wait_for()
    page.reload()
    page.get_by_text("so \\boxed{1}").wait_for()
    page.get_by_role("button", name="Close").click()
    page.get_by_text("so \\boxed{1}").wait_for(state="detached")
    assert watched.errors == []


def test_missing_runs_of_a_study_are_launched(open_page, runs_root):
    watched = open_page("/studies?study=repo&seeds-chains=1")
    page = watched.page
    page.get_by_role("button", name="Launch 2 missing runs").click()
    page.get_by_role("button", name="Nothing is missing").wait_for()
    keys = [key_from_tags(run.job_spec().tags) for run in list_run_directories(runs_root)]
    assert sorted(key.cell for key in keys if key is not None) == ["exgrpo-re", "repo"]
    page.get_by_role("tab", name="What the paper prints").click()
    page.get_by_role("heading", name="In the text").wait_for()
    assert "study=repo" in page.url
    assert watched.errors == []


def test_a_card_of_the_paper_opens_and_a_box_of_the_method_leads_to_its_page(open_page):
    watched = open_page("/paper", color_scheme="dark")
    page = watched.page
    page.get_by_role("button", name="Figure 2 Overview of ExGRPO").click()
    page.wait_for_url(re.compile(r"figure=method"))
    page.get_by_role("link", name="Lowest entropy o*").click()
    page.wait_for_url(re.compile(r"/selection_audit\?run=run-"))
    page.get_by_role("heading", name="Selection audit").wait_for()
    page.go_back()
    page.get_by_text("Figure 2: Overview of ExGRPO").wait_for()
    assert watched.errors == []
