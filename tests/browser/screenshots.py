"""Takes the pictures of docs/images from a running workbench: `python -m tests.browser.screenshots LINK RUN_ID`."""

import sys
from pathlib import Path
from urllib.parse import urlsplit

from playwright.sync_api import Browser, sync_playwright

from tests.browser.conftest import FLAGS, find_browser

IMAGES = Path(__file__).resolve().parents[2] / "docs" / "images"
SIZES = {1440: 1000, 1024: 800}
SETTLE_MILLISECONDS = 12_000


def pages(run_id: str) -> dict[str, str]:
    """Return the address of each picture's page."""
    return {
        "runs": "/",
        "new-run": "/new_run?section=Algorithm",
        "run": f"/run?run={run_id}",
        "run-buffer": f"/run?run={run_id}&view=Replay+buffer",
    }


def take(browser: Browser, link: str, run_id: str, width: int, scheme: str) -> None:
    """Take every page in one size and theme."""
    parts = urlsplit(link)
    context = browser.new_context(viewport={"width": width, "height": SIZES[width]}, color_scheme=scheme)
    page = context.new_page()
    page.goto(link)
    page.wait_for_timeout(1000)
    for name, address in pages(run_id).items():
        page.goto(f"{parts.scheme}://{parts.netloc}{address}")
        page.wait_for_timeout(SETTLE_MILLISECONDS)
        page.screenshot(path=IMAGES / f"{name}-{scheme}-{width}.png")
    context.close()


def main(link: str, run_id: str) -> None:
    """Take all pictures."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=FLAGS)
        for width in SIZES:
            for scheme in ("light", "dark"):
                take(browser, link, run_id, width, scheme)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
