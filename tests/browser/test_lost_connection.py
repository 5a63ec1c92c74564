"""A server that goes away and comes back: the page says so, and is there again."""

import socket

import pytest

from tests.app import recorded, web_server

pytestmark = [pytest.mark.browser, pytest.mark.slow]
HAS_OPENED_ATTEMPTS = """() => {
  const tab = [...document.querySelectorAll("[role=tab]")].find(tab => tab.textContent === "Attempts");
  tab.click();
  return document.body.textContent.includes("Checkpoints");
}"""
TOKEN = "a-token-that-stays-the-same"


def test_a_lost_connection_is_said_and_the_page_comes_back_by_itself(browser, tmp_path):
    recorded.record(tmp_path, recorded.FINISHED)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    served = web_server.start(tmp_path, "--port", port, token=TOKEN)
    page = browser.new_context().new_page()
    page.set_default_timeout(90_000)
    try:
        page.goto(f"{served.origin}/run?run=run-finished&view=Log&token={TOKEN}")
        page.get_by_text("step 300 of exgrpo whole").wait_for()
        served.stop()
        page.get_by_role("alert").filter(has_text="Connection lost").wait_for()
        served = web_server.start(tmp_path, "--port", port, token=TOKEN)
        page.locator("#connection-lost").wait_for(state="detached")
        page.get_by_text("step 300 of exgrpo whole").wait_for()
        page.wait_for_function(HAS_OPENED_ATTEMPTS, polling=2_000)
    finally:
        page.context.close()
        served.stop()
