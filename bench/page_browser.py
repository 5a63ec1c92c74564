"""What a browser gets of a page, and when: bytes by web socket, time to the content, and the server's time for it."""

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import streamlit as st
from streamlit import config
from streamlit.runtime.scriptrunner.script_cache import ScriptCache
from streamlit.testing.v1 import AppTest, app_test

from bench.stopwatch import Stopwatch
from exgrpo.app import settings, theme
from exgrpo.app.page_list import PageEntry
from exgrpo.db import DATABASE_URL_VARIABLE

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--disable-background-networking"]
_QUIET_SECONDS = 1.5
_PAINT_MS = 60_000


def find_browser() -> str | None:
    """Return the browser on PATH, None where there is none."""
    return next((path for name in _BROWSERS if (path := shutil.which(name))), None)


_IS_SEEN = """content => {
  const inView = (part) => {
    const {top, bottom, height} = part.getBoundingClientRect();
    return height > 0 && bottom > 0 && top < innerHeight;
  };
  const all = (part) => [...document.querySelectorAll(part)].filter(inView);
  return document.querySelector("[data-testid=stApp][data-test-script-state=notRunning]")
    && document.querySelector(content)
    && all("[data-testid=stSkeleton]").length === 0
    && all("[data-testid=stFullScreenFrame], .chart").every((frame) => frame.querySelector(".main-svg, canvas, img"))
    && performance.now();
}"""
"""The ms from the address until everything in the window is drawn and the page's script has ended; else false."""
ADD_SHIFTS = """window.layoutShift = 0;
new PerformanceObserver((list) => {
  for (const {value, hadRecentInput} of list.getEntries()) window.layoutShift += hadRecentInput ? 0 : value;
}).observe({type: "layout-shift"});"""
"""A script for new tabs: the sum of Chromium's scores of layout shift since the address was opened."""
CONTRAST = """part => {
    const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (channel) => channel <= 0.03928 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
    const luminance = ([red, green, blue]) =>
        0.2126 * light(red / 255) + 0.7152 * light(green / 255) + 0.0722 * light(blue / 255);
    let behind = [0, 0, 0], cover = 0, strength = 1;
    for (let element = part; element; element = element.parentElement) {
        strength *= Number(getComputedStyle(element).opacity);
        const [red, green, blue, alpha = 1] = parse(getComputedStyle(element).backgroundColor);
        behind = behind.map((sum, i) => sum + (1 - cover) * alpha * [red, green, blue][i]);
        cover += (1 - cover) * alpha;
    }
    const [red, green, blue, alpha = 1] = parse(getComputedStyle(part)[part instanceof SVGElement ? "fill" : "color"]);
    strength *= alpha;
    const seen = behind.map((channel, i) => (1 - strength) * channel + strength * [red, green, blue][i]);
    const values = [luminance(seen), luminance(behind)].sort((a, b) => b - a);
    return (values[0] + 0.05) / (values[1] + 0.05);
}"""
"""How much the words of an element stand out from what is behind them, by WCAG; 4.5 can be read."""
_FAINTEST = f"""() => [...document.querySelectorAll("[data-testid=stApp] *")].filter((part) =>
    [...part.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.data.trim())
    && part.checkVisibility({{opacityProperty: true, visibilityProperty: true}})
    && !part.closest("[disabled], [aria-disabled=true], [data-testid=stSliderThumbValue], [data-testid=stIconMaterial]")
).map((part) => [({CONTRAST})(part), part.textContent.trim().slice(0, 40)]).sort(([a], [b]) => a - b)[0]"""
"""The lowest contrast of a page's words, and these words; icons, disabled parts and values next to a slider's knob are
left out."""


@dataclass(frozen=True, slots=True)
class Visit:
    """When a page showed what, in ms from its address, and the bytes that it got by web socket till it was quiet."""

    first_ms: float
    """First content: text or picture."""
    painted_ms: float
    """The element that was waited for."""
    seen_ms: float
    """Everything in the window."""
    num_bytes: int


@dataclass(frozen=True, slots=True)
class Look:
    """How a page came up and reads in one window."""

    shift: float
    """Chromium's score of layout shift, of all that moved."""
    contrast: float
    """The lowest contrast of its words, by WCAG."""
    faintest: str
    """These words."""


class PageVisits:
    """A browser signed in to one server."""

    def __init__(self, browser: Any, link: str) -> None:  # noqa: ANN401 - playwright is not always installed
        self._browser = browser
        self._origin = re.match(r"https?://[^/?]+", link)[0]  # type: ignore[index]
        self._link = link

    def visit(self, path: str, content: str) -> Visit:
        """Open an address in a new tab, until `content`, a selector, and everything else in the window shows."""
        with self._tab() as (page, received):
            began_at = time.perf_counter()
            page.goto(f"{self._origin}/{path}", wait_until="commit")
            page.locator(content).first.wait_for(timeout=_PAINT_MS)
            painted_ms = 1000 * (time.perf_counter() - began_at)
            seen_ms = page.wait_for_function(_IS_SEEN, arg=content, timeout=_PAINT_MS).json_value()
            first_ms = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
            _wait_until_quiet(page, received)
            return Visit(first_ms, painted_ms, seen_ms, sum(size for _, size in received))

    def look(self, path: str, width: int, scheme: str) -> Look:
        """Open an address in a window of this width, light or dark, until its page is there and quiet."""
        with self._tab(width) as (page, received):
            page.emulate_media(color_scheme=scheme)
            page.add_init_script(ADD_SHIFTS)
            page.goto(f"{self._origin}/{path}")
            page.wait_for_function(_IS_SEEN, arg="h1", timeout=_PAINT_MS)
            _wait_until_quiet(page, received)
            return Look(page.evaluate("layoutShift"), *page.evaluate(_FAINTEST))

    def cold_load(self) -> tuple[int, int]:
        """Return the requests and bytes, web socket included, of the link with nothing cached, until it is quiet."""
        with self._empty_tab() as (page, received):
            requests: list[Any] = []
            page.on("requestfinished", lambda request: requests.append(request))
            page.goto(self._link)
            page.wait_for_function(_IS_SEEN, arg="h1", timeout=_PAINT_MS)
            _wait_until_quiet(page, received)
            sizes = [request.sizes() for request in requests]
            answers = sum(size["responseHeadersSize"] + size["responseBodySize"] for size in sizes)
            return len(requests), answers + sum(size for _, size in received)

    def click(self, entry: PageEntry) -> float:
        """Return the ms from a click in the sidebar of the list of runs until everything in the page's window shows."""
        with self._tab() as (page, _):
            page.goto(self._origin)
            page.wait_for_function(_IS_SEEN, arg="h1", timeout=_PAINT_MS)
            began_at = time.perf_counter()
            page.get_by_test_id("stSidebarNav").get_by_role("link", name=entry.title, exact=True).click()
            is_seen = f"title => document.title.includes(title) && ({_IS_SEEN})('h1')"
            page.wait_for_function(is_seen, arg=f"{entry.title} · ExGRPO", timeout=_PAINT_MS)
            return 1000 * (time.perf_counter() - began_at)

    def crowd(self, path: str, content: str, num_tabs: int) -> list[float]:
        """Open an address in many browsers at once; return the ms until each shows `content`, those that never do not.

        The figures are by the tabs' own clocks.
        """
        with ExitStack() as stack:
            pages = [stack.enter_context(self._tab())[0] for _ in range(num_tabs)]
            for page in pages:
                page.goto(f"{self._origin}/{path}", wait_until="commit")
            return [seen for page in pages if (seen := _seen_ms(page, content)) is not None]

    def watch(self, path: str, content: str, seconds: float, change: Callable[[], None]) -> list[int]:
        """Return the bytes of each refresh of a page that is left open, with a change in the database before each."""
        with self._tab() as (page, received):
            page.goto(f"{self._origin}/{path}")
            page.locator(content).first.wait_for(timeout=_PAINT_MS)
            page.wait_for_timeout(1000 * 4 * _QUIET_SECONDS)
            received.clear()
            end = time.monotonic() + seconds
            while time.monotonic() < end:
                change()
                page.wait_for_timeout(500)
            return _bursts(received)

    @contextmanager
    def _tab(self, width: int = 1440) -> Iterator[tuple[Any, list[tuple[float, int]]]]:
        with self._empty_tab(width) as (page, received):
            page.goto(self._link)
            page.locator("h1").first.wait_for(timeout=_PAINT_MS)
            page.goto("about:blank")
            received.clear()
            yield page, received

    @contextmanager
    def _empty_tab(self, width: int = 1440) -> Iterator[tuple[Any, list[tuple[float, int]]]]:
        context = self._browser.new_context(viewport={"width": width, "height": 900})
        page = context.new_page()
        received: list[tuple[float, int]] = []

        def note(payload: str | bytes) -> None:
            received.append((time.monotonic(), len(payload)))

        page.on("websocket", lambda socket: socket.on("framereceived", note))
        try:
            yield page, received
        finally:
            context.close()


@contextmanager
def served(runs_root: Path, database_url: str | None, python: str = sys.executable) -> Iterator[str]:
    """Serve the workbench's pages, with an environment's interpreter, and give the link to them."""
    environment = {**os.environ, **({DATABASE_URL_VARIABLE: database_url} if database_url else {})}
    command = [python, "-m", "exgrpo.app.serving", "--runs-root", str(runs_root), "--port", "0"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def visits(link: str) -> Iterator[PageVisits]:
    """Give a browser for the pages behind a link."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_browser(), args=_FLAGS)
        try:
            yield PageVisits(browser, link)
        finally:
            browser.close()


def _seen_ms(page: Any, content: str) -> float | None:  # noqa: ANN401 - see above
    from playwright.sync_api import TimeoutError as NeverSeenError

    try:
        seen: float = page.wait_for_function(_IS_SEEN, arg=content, timeout=_PAINT_MS).json_value()
    except NeverSeenError:
        return None
    return seen


def _wait_until_quiet(page: Any, received: list[tuple[float, int]]) -> None:  # noqa: ANN401 - see above
    """Wait until nothing has come for a while; a page that refreshes itself comes to rest between two refreshes."""
    give_up_at = time.monotonic() + 10 * _QUIET_SECONDS
    while time.monotonic() < give_up_at and time.monotonic() - received[-1][0] < _QUIET_SECONDS:
        page.wait_for_timeout(100)


def _bursts(received: list[tuple[float, int]]) -> list[int]:
    """Return the bytes of each group of messages that came within half a second of each other."""
    sizes: list[int] = []
    last = 0.0
    for at, size in received:
        if at - last > _QUIET_SECONDS / 3:
            sizes.append(0)
        sizes[-1] += size
        last = at
    return sizes


_MAIN_SCRIPT = Path(settings.__file__).parent / "main.py"
_SERVER_OPTIONS = ("browser.gatherUsageStats", "runner.magicEnabled")
"""What the server sets otherwise than Streamlit by itself, and what takes time in a script."""


def time_script(page: str, query: Mapping[str, str], changes: Mapping[str, list[str]], repeats: int) -> Stopwatch:
    """Return the time of each run of a page's script.

    Args:
        page: File name in `app/app_pages`, without its ending.
        query: The page's address.
        changes: Parameters of the address that differ from run to run, so that nothing remembered answers.
        repeats: How many runs to time, after one that loads modules and opens the database.

    Raises:
        RuntimeError: The page showed an error.
    """
    for option in _SERVER_OPTIONS:
        config.set_option(option, theme.streamlit_options("", 0)[option])
    page_test = AppTest.from_file(str(_MAIN_SCRIPT), default_timeout=120)
    for key, value in query.items():
        page_test.query_params[key] = value
    watch = Stopwatch()
    with patch.object(app_test, "ScriptCache", return_value=ScriptCache()):  # compiled once, as the server does
        page_test.switch_page(f"app_pages/{page}.py").run()
        for item in range(repeats):
            for key, values in changes.items():
                page_test.text_input(key=key).set_value(values[item % len(values)])
            st.cache_data.clear()
            with watch.lap():
                page_test.run()
            if page_test.exception:
                raise RuntimeError(f"{page}: {page_test.exception[0].value}")
    return watch
