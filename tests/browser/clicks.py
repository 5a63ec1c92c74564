"""Clicks on rows of tables and on downloads, and refreshes to wait for."""

import re
from pathlib import Path

from streamlit.proto.BackMsg_pb2 import BackMsg

IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"


def enter(page, link):
    """Open a link with the token, and wait for the page that it leads to.

    The page of the link navigates by itself, which would end a navigation of the test.
    """
    page.goto(link)
    page.wait_for_url(lambda url: "token=" not in url)


def rows(page, table=0):
    return page.locator(".data-table").nth(table).locator("tbody tr")


def open_row(page, address, row=0, table=0):
    rows(page, table).nth(row).click()
    page.wait_for_url(re.compile(address))


def wait_for_value(field, value):
    """Wait until a field holds a value, which the server may send after the page's address has changed."""
    from playwright.sync_api import expect

    expect(field).to_have_value(value, timeout=60_000)


def download(page, label):
    with page.expect_download() as started:
        page.get_by_role("button", name=re.compile(rf"(^|\W|_){label}$")).click()
    assert started.value.failure() is None
    return Path(started.value.path()).read_text(encoding="utf-8"), started.value.suggested_filename


class Between:
    """Stands between a page and its server: it remembers the refreshes, and may hold what the page sends."""

    def __init__(self, page):
        self.page = page
        self.refreshes: list[bytes] = []
        self.held: list[bytes] = []
        self.is_holding = False
        """Whether what the page sends is kept here, but for refreshes."""
        page.route_web_socket(re.compile("/_stcore/stream"), self._connect)
        page.reload()

    def _connect(self, socket):
        server = socket.connect_to_server()

        def pass_on(message):
            is_refresh = BackMsg.FromString(message).rerun_script.is_auto_rerun
            if is_refresh:
                self.refreshes.append(message)
            if self.is_holding and not is_refresh:
                self.held.append(message)
            else:
                server.send(message)

        self.send = server.send
        socket.on_message(pass_on)

    def wait_for_refreshes(self, number):
        goal = len(self.refreshes) + number
        while len(self.refreshes) < goal:
            self.page.wait_for_timeout(100)

    def release(self):
        """Send on what was held, and hold no more."""
        self.is_holding = False
        for message in self.held:
            self.send(message)
