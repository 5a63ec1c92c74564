import pytest

from exgrpo.jobs.actions.studies.definition import RunKey, Scale, load_study
from exgrpo.jobs.actions.studies.study_report import render_report
from exgrpo.jobs.actions.studies.study_results import read_results
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from tests.jobs.actions.studies.recorded import record_run

pytestmark = [pytest.mark.slow, pytest.mark.browser]

INK = {"light": "rgb(26, 28, 32)", "dark": "rgb(230, 232, 236)"}


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    study = load_study("ablations")
    for cell, num_correct in (("on-policy", 4), ("exgrpo", 7)):
        for seed in range(2):
            record_run(folder, study, RunKey("ablations", Scale.CHAINS, cell, seed), num_correct + seed)
    with open_fresh_index(folder, None) as database:
        page = render_report(read_results(database, study, Scale.CHAINS, []), 4)
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


@pytest.mark.parametrize("theme", INK)
def test_the_page_draws_its_figures_offline_in_both_themes(report, browser, theme):
    page = browser.new_page(color_scheme=theme)
    messages, requests = [], []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.on("request", lambda request: requests.append(request.url))
    page.goto(report.as_uri())
    intervals, curves = page.locator(".plot").all()
    assert intervals.locator(".trace.scatter").nth(0).locator("path.point").count() == 4
    assert intervals.locator(".errorbar").count() == 2
    assert curves.locator("path.js-line").count() == 2 * (2 + 2)
    label = intervals.locator(".ytick text").first
    assert label.evaluate("text => getComputedStyle(text).fill") == INK[theme]
    assert (messages, requests) == ([], [report.as_uri()])
    page.close()
