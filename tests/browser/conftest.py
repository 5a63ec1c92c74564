import os
import shutil

import pytest

from tests.app import played, recorded, web_server
from tests.browser.clicks import enter

BROWSER_NAMES = ("chromium", "chromium-browser", "google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    # Tests serve HTTPS by certificates that they sign. A context that ignores the error of each connection starts the
    # request again for each of them, and Chromium ends a request that started 32 times.
    "--ignore-certificate-errors",
]


def find_browser(path=None):
    """Return the first browser that `.ci/tools` would be content with, on PATH or on a given search path."""
    executables = (shutil.which(name, path=path) for name in BROWSER_NAMES)
    return next((executable for executable in executables if executable is not None), None)


def missing_browser():
    try:
        import playwright.sync_api  # noqa: F401 - only whether it is there
    except ImportError:
        return "the playwright package is not installed"
    return None if find_browser() else f"none of {', '.join(BROWSER_NAMES)} is on PATH: apt-get install chromium"


@pytest.fixture(scope="module")
def browser():
    """The browser on PATH; where none is the tests are skipped, but in CI they fail.

    It ends with each file: while it lives, no other test of this process can run an event loop.
    """
    reason = missing_browser()
    if reason and os.environ.get("CI"):
        pytest.fail(f"browser tests cannot run: {reason}")
    if reason:
        pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=find_browser(), args=FLAGS, timeout=180_000)
        yield started
        started.close()


@pytest.fixture(scope="session")
def workbench(tmp_path_factory):
    runs_root = tmp_path_factory.mktemp("runs")
    recorded.record_all(runs_root)
    played.record_all(runs_root)
    served = web_server.start(runs_root)
    yield served
    served.stop()


class Watched:
    """A browser page that remembers what must not happen."""

    def __init__(self, page, origin):
        self.page = page
        self.errors: list[str] = []
        ours = (origin, origin.replace("http", "ws", 1), "data:", "blob:")
        self._downloads = f"{origin}/media/"
        page.on("console", self._note_error)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", lambda dialog: self.errors.append(dialog.message) or dialog.dismiss())
        page.on("request", lambda request: request.url.startswith(ours) or self.errors.append(request.url))

    def _note_error(self, message):
        """Note an error of the console.

        Streamlit asks for the file of a download as it draws its button, and gets 404 where a newer run of the page has
        already replaced both.
        """
        url = message.location["url"]
        if message.type == "error" and not url.startswith(self._downloads):
            self.errors.append(f"{message.text} {url}")


@pytest.fixture(scope="module")
def profile(browser, workbench):
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    enter(page, workbench.link)
    page.close()
    yield context
    context.close()


@pytest.fixture
def open_page(profile, workbench):
    """Open a page in a tab of its own: `open_page("/path", color_scheme="dark")`."""
    opened = []

    def open_at(path="/", color_scheme="light"):
        watched = Watched(profile.new_page(), workbench.origin)
        opened.append(watched.page)
        watched.page.set_default_timeout(90_000)
        watched.page.emulate_media(color_scheme=color_scheme)
        watched.page.goto(f"{workbench.origin}{path}")
        return watched

    yield open_at
    for page in opened:
        page.close()
