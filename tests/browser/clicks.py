"""Clicks on what takes them only once it is drawn: tables, which are canvases, and popovers."""

import re
import time

IDLE = "[data-testid=stApp][data-test-script-state=notRunning]"
GIVE_UP_SECONDS = 90.0
TRY_MS = 20_000


def click_until(page, x, y, address, table=0):
    """Click into a table until the address changes so."""
    from playwright.sync_api import TimeoutError as NothingChangedError

    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    while True:
        page.locator(IDLE).wait_for()
        page.get_by_test_id("stDataFrame").nth(table).locator("canvas").first.wait_for()
        page.wait_for_timeout(1000)
        page.get_by_test_id("stDataFrame").nth(table).click(position={"x": x, "y": y})
        try:
            return page.wait_for_url(re.compile(address), timeout=TRY_MS)
        except NothingChangedError:
            assert time.monotonic() < give_up_at, f"no click led to {address}"


def open_popover(page, name, content):
    """Click the popover's button until its content is there; a page that is still drawn may lose a click."""
    from playwright.sync_api import TimeoutError as NothingOpenedError

    give_up_at = time.monotonic() + GIVE_UP_SECONDS
    while True:
        page.locator(IDLE).wait_for()
        page.get_by_role("button", name=name).first.click()
        try:
            return content.wait_for(timeout=TRY_MS)
        except NothingOpenedError:
            assert time.monotonic() < give_up_at, f"no click opened {name}"
