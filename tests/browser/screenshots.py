"""Takes pictures of every page: `python -m tests.browser.screenshots LINK RUN OTHER_RUN FOLDER [NAME ...]`.

LINK is what `exgrpo up` prints, RUN the id of a finished replaying run, OTHER_RUN of one to compare it with. Each page
is taken in both themes and both sizes; the names of pages choose some of them. `moving` is the picture of the README:
the flow through the replay buffer of RUN, ten steps at a time.
"""

import io
import sys
from pathlib import Path
from urllib.parse import urlsplit

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.clicks import IDLE, enter, rows
from tests.browser.conftest import FLAGS, find_browser

SIZES = {1440: 1000, 1024: 800}
THEMES = ("light", "dark")
SETTLE_MILLISECONDS = 8_000
OPENED = "trajectory"
"""The picture of the trajectory that was replayed most often."""
MOVING = "moving"
MOVING_STEPS = range(30, 151, 10)
FRAME_MILLISECONDS = 900


def pages(run, other):
    return {
        "runs": "/", "new-run": "/new_run?section=Algorithm", "run": f"/run?run={run}",
        "compare": f"/compare?runs={run},{other}", "replay-buffer": f"/run?view=Buffer&run={run}&part=Flow",
        "trajectories": f"/run?view=Trajectories&run={run}",
        OPENED: f"/run?view=Trajectories&run={run}&sort=-replays&part=Lineage", "step": f"/run?view=Step&run={run}",
        "code": f"/run?view=Reasoning&run={run}&part=Code",
        "snowball-cases": f"/run?view=Reasoning&run={run}&part=Cases", "entropy": f"/run?view=Reasoning&run={run}",
        "judges": f"/run?view=Reasoning&run={run}&part=Judges", "benchmarks": "/benchmarks",
        "studies": "/methods?view=Studies&study=ablations",
        "studies-paper": "/methods?view=Studies&study=ablations&part=Next+to+the+paper",
        "paper-method": "/methods?view=Paper&figure=method", "system": "/system?view=Audit+log",
    }  # fmt: skip


def take(browser, link, addresses, folder, width, theme):
    """Take pages in one size and theme; what a browser's console says of errors is printed."""
    parts = urlsplit(link)
    context = browser.new_context(viewport={"width": width, "height": SIZES[width]}, color_scheme=theme)
    page = context.new_page()
    page.on("console", lambda message: message.type == "error" and print(f"{page.url}: {message.text}"))  # noqa: T201
    enter(page, link)
    page.get_by_role("heading", level=1).first.wait_for(timeout=90_000)
    for name, address in addresses.items():
        page.goto(f"{parts.scheme}://{parts.netloc}{address}")
        if name == OPENED:
            rows(page).first.click()
            page.get_by_text("Entropy and bucket by step").scroll_into_view_if_needed(timeout=90_000)
        page.wait_for_timeout(SETTLE_MILLISECONDS)
        page.locator(IDLE).wait_for(timeout=90_000)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        picture = picture.quantize(128, Image.Quantize.MAXCOVERAGE, kmeans=3, dither=Image.Dither.NONE)
        picture.save(folder / f"{name}-{theme}-{width}.png", optimize=True)
    context.close()


def animate(browser, link, run, path):
    """Save the flow of questions between the buckets, step by step, as an animated WebP."""
    parts = urlsplit(link)
    page = browser.new_context(viewport={"width": 1200, "height": 960}, color_scheme="light").new_page()
    enter(page, link)
    frames = []
    for step in MOVING_STEPS:
        page.goto(f"{parts.scheme}://{parts.netloc}/run?view=Buffer&run={run}&part=Flow&step={step}&base={step - 10}")
        page.get_by_text(f"From step {step - 10} to step {step}").wait_for(timeout=90_000)
        page.locator(IDLE).wait_for(timeout=90_000)
        page.wait_for_timeout(SETTLE_MILLISECONDS / 2)
        frames.append(Image.open(io.BytesIO(page.screenshot())).convert("RGB").resize((960, 768)))
    frames[0].save(path, save_all=True, append_images=frames[1:], duration=FRAME_MILLISECONDS, loop=0, quality=90)


def main(link, run, other, folder, *names):
    addresses = {name: address for name, address in pages(run, other).items() if not names or name in names}
    Path(folder).mkdir(parents=True, exist_ok=True)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=FLAGS)
        if MOVING in names:
            animate(browser, link, run, Path(folder) / "replay-buffer-moving.webp")
        for width in SIZES if addresses else ():
            for theme in THEMES:
                take(browser, link, addresses, Path(folder), width, theme)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
