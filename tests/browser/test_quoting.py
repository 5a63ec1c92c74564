"""What a writer of a paper does, in as few clicks as they may take: a case in LaTeX, verdicts on chains of thought."""

import re

import pytest

from tests.app import judged, web_server
from tests.browser.clicks import IDLE, download

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def workbench(tmp_path_factory):
    """A server over a run whose chains of thought are judged."""
    runs_root = tmp_path_factory.mktemp("judged")
    judged.record_all(runs_root)
    served = web_server.start(runs_root)
    yield served
    served.stop()


@pytest.fixture
def opened(open_page):
    """A page that shows the run."""
    page = open_page(f"/run?run={judged.JUDGED}").page
    page.locator(IDLE).wait_for()
    return page


def test_a_case_is_latex_and_markdown_after_four_clicks(opened):
    opened.get_by_test_id("stSidebar").get_by_role("link", name="Snowball").click()
    opened.get_by_role("tab", name="Cases", exact=True).click()
    opened.get_by_role("button", name=re.compile("For a paper")).first.click()
    text, name = download(opened, "LaTeX")
    assert name.endswith(".tex")
    assert text.count("\\begin{quote}") == text.count("\\end{quote}") == 4
    assert "\\paragraph{Case 1.} Run" in text
    text, _ = download(opened, "Markdown")
    assert text.startswith("# Snowball case\n\n## Case 1\n")


def test_verdicts_on_chains_of_thought_are_two_clicks_from_a_finished_run(opened):
    opened.get_by_test_id("stSidebar").get_by_role("link", name="Entropy and judge").click()
    opened.get_by_role("tab", name="Verdicts").click()
    opened.get_by_text("Valid chains", exact=True).wait_for()
    assert judged.JUDGED in opened.url
