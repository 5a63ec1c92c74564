"""A conversation in a browser: turns that fold, the keys of the open trajectory, and hostile text."""

import re
from contextlib import closing
from datetime import UTC, datetime

import pytest

from exgrpo.db.connections.opening import open_database
from tests.app import recorded, web_server
from tests.browser.clicks import enter, wait_for_value
from tests.browser.conftest import Watched
from tests.db.conversations import HOSTILE_CALL, RUN_CODE, SEARCHED, ingest

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def talks(browser, tmp_path_factory):
    runs_root = tmp_path_factory.mktemp("talks")
    recorded.beat(runs_root, datetime.now(UTC))
    with closing(open_database(None, runs_root)) as database:
        ingest(database, runs_root, dict(enumerate((SEARCHED, RUN_CODE, HOSTILE_CALL))))
    served = web_server.start(runs_root)
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    page.set_default_timeout(90_000)
    enter(page, served.link)
    yield served, Watched(page, served.origin), runs_root
    context.close()
    served.stop()


def settle(page):
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()


def test_turns_fold_and_keys_move_group_and_mark_but_not_while_typing(talks):
    served, watched, runs_root = talks
    page = watched.page
    page.goto(f"{served.origin}/run?view=Trajectories&run=talks&trajectory=0")
    turn = page.locator(".conversation details.turn").first
    answer = turn.get_by_text("Timeout after ten seconds")
    answer.wait_for()
    turn.locator("summary").first.click()
    answer.wait_for(state="hidden")
    settle(page)
    for key, number in (("k", 1), ("k", 2), ("j", 1)):
        page.keyboard.press(key)
        page.get_by_role("heading", name=f"Trajectory {number}", exact=True).wait_for()
        settle(page)
    page.keyboard.press("g")
    page.get_by_role("tab", name="Group", selected=True).wait_for()
    settle(page)
    page.keyboard.press("m")
    page.get_by_test_id("stToast").get_by_text("Saved").wait_for()
    assert '"look again"' in (runs_root / "workbench" / "journal.jsonl").read_text(encoding="utf-8")
    page.keyboard.press("/")
    page.keyboard.type("jkgm")
    wait_for_value(page.get_by_placeholder(re.compile("^Search")), "jkgm")
    page.get_by_role("heading", name="Trajectory 1", exact=True).wait_for()
    assert watched.errors == []
