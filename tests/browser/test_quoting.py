"""Jobs of a reader of chains of thought and of one with a benchmark, each in as few clicks as it may take."""

import pytest

from tests.app import web_server
from tests.browser.clicks import enter
from tests.jobs.evaluation.tiny_evaluations import save_tiny_model

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_benchmark_of_ones_own_is_scored_by_a_link_that_names_the_model_and_read_after_four_clicks(browser, tmp_path):
    folder = save_tiny_model(tmp_path / "model")
    (tmp_path / "sums.jsonl").write_text('{"problem": "1+1?", "answer": 2}\n{"problem": "2+2?", "answer": "4"}\n')
    root = tmp_path / "runs"
    with web_server.start_with_supervisor(root) as served:
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        page.set_default_timeout(90_000)
        enter(page, served.link)
        page.goto(f"{served.origin}/benchmarks?start=true&target={folder}&template=none")
        page.locator("[data-testid=stFileUploader] input").set_input_files(tmp_path / "sums.jsonl")
        page.get_by_text("Your benchmark sums: 2 questions").wait_for()
        page.get_by_text("1+1?", exact=True).wait_for()
        page.get_by_text("Gold answer: 2, graded as math").wait_for()
        page.get_by_role("button", name="Start evaluation").click()
        page.get_by_role("tab", name="Samples").click()
        page.get_by_text("2 questions; click one for its answers").wait_for()
        page.get_by_role("tab", name="Results").click()
        page.get_by_role("link", name="Compare these scores under Benchmarks").click()
        page.get_by_text("Your benchmarks", exact=True).wait_for()
        row = page.get_by_role("row").filter(has_text="model").filter(has_text="0.0")
        row.first.wait_for()
        page.get_by_role("row").filter(has_text="On-Policy").first.wait_for()
        page.close()
