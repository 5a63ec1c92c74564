"""A clicked button answers at once, however long the server takes."""

import re

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_clicked_button_is_busy_before_the_server_hears_of_it_and_takes_no_second_click(open_page):
    page = open_page("/new_run").page
    held, is_holding = [], []

    def between(socket):
        server = socket.connect_to_server()

        def pass_on(message):
            is_refresh = BackMsg.FromString(message).rerun_script.is_auto_rerun
            if not is_holding:
                server.send(message)
            elif not is_refresh:
                held.append((server, message))

        socket.on_message(pass_on)

    page.route_web_socket(re.compile("/_stcore/stream"), between)
    page.reload()
    save = page.locator(".st-key-save-draft button")
    save.wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    save.evaluate(
        "button => button.addEventListener('click', () => { window.numClicks = (window.numClicks ?? 0) + 1; })"
    )
    is_holding.append(True)
    save.click()
    page.locator(".st-key-save-draft button[aria-busy=true]").wait_for()
    box = save.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.evaluate("numClicks") == 1
    is_holding.clear()
    for server, message in held:
        server.send(message)
    page.locator(".st-key-save-draft button:not([aria-busy])").wait_for()
    page.get_by_role("button", name=re.compile("Drafts")).wait_for()
