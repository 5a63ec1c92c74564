"""A server that goes away and comes back: the page says so, and is there again."""

import re
import signal
import threading

import pytest

from tests.app import recorded, web_server
from tests.browser.clicks import enter
from tests.http_server import Answer, answering
from tests.tools import free_port

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HAS_OPENED_ATTEMPTS = """() => {
  const tabs = [...document.querySelectorAll("[role=tab]")];
  const tab = (name) => tabs.find(tab => tab.textContent === name);
  (tab("Attempts") ?? tab("Configuration"))?.click();  // a page that was loaded again has drawn none yet
  return document.body.textContent.includes("Checkpoints");
}"""
TOKEN = "a-token-that-stays-the-same"
DAY = "24:00:00"
SIGN_OUT = "/auth/logout"
NUM_CHECKS = 8
"""Twice as many as lead to the page being loaded again."""


@pytest.fixture(scope="module")
def runs_root(tmp_path_factory):
    root = tmp_path_factory.mktemp("lost")
    recorded.record(root, recorded.FINISHED)
    return root


@pytest.fixture
def page(browser):
    page = browser.new_context().new_page()
    page.set_default_timeout(90_000)
    yield page
    page.context.close()


def open_log(page, served):
    enter(page, f"{served.origin}/run?run=run-finished&view=Log&token={served.token}")
    page.get_by_text("step 300 of exgrpo whole").wait_for()


def test_a_lost_connection_is_said_and_the_page_comes_back_by_itself_or_says_what_to_open(page, runs_root):
    port = str(free_port())
    served = web_server.start(runs_root, "--port", port, token=TOKEN)
    try:
        page.clock.install()
        open_log(page, served)
        served.process.send_signal(signal.SIGSTOP)
        page.clock.fast_forward(DAY)
        served.process.send_signal(signal.SIGCONT)  # both were asleep
        page.wait_for_function(HAS_OPENED_ATTEMPTS, polling=2_000)
        page.locator("#connection-lost").wait_for(state="detached")
        served.stop()
        page.get_by_role("alert").filter(has_text="Connection lost").wait_for()
        served = web_server.start(runs_root, "--port", port, token=TOKEN)
        page.locator("#connection-lost").wait_for(state="detached")
        page.wait_for_function(HAS_OPENED_ATTEMPTS, polling=2_000)
        served.stop()
        page.clock.fast_forward(DAY)
        served = web_server.start(runs_root, "--port", port, token="the-token-of-the-next-day")
        page.get_by_text("This workbench is locked").wait_for()
        assert "run=run-finished" in page.url
        open_log(page, served)
    finally:
        served.stop()


HTML = (("Content-Type", "text/html"),)


def slow_to_sign_out(port):
    """Serve what is not ready before a sign-out is asked for, and answers that after some checks of the connection."""
    checks, is_leaving = threading.Semaphore(0), threading.Event()

    def answer(asked):
        if asked.path == "/_stcore/health":
            if not is_leaving.is_set():
                return Answer("not ready", 503)
            checks.release()
        elif asked.path == SIGN_OUT:
            is_leaving.set()
            for _ in range(NUM_CHECKS):
                checks.acquire()
            return Answer("Signed out", headers=HTML)
        return Answer("Loaded again", headers=HTML)

    return answering(answer, port)


def test_a_sign_out_that_takes_long_is_not_undone_by_loading_the_page_again(page, runs_root):
    port = free_port()
    served = web_server.start(runs_root, "--port", str(port), token=TOKEN)
    try:
        open_log(page, served)
    finally:
        served.stop()
    with slow_to_sign_out(port):
        page.evaluate(f"() => {{ location.href = '{SIGN_OUT}'; }}")
        page.get_by_text(re.compile("Signed out|Loaded again")).wait_for()
        assert page.url.endswith(SIGN_OUT)
