"""How fast pages answer on a large database, and how much they send.

Run `python -m bench.pages` (1,000 runs with 100 k points each and a million trajectories; `--short`: 5 runs with 2,000
trajectories, each view once and one page in the browser; `--times-ten`: 20 runs with ten million trajectories without
texts, and lists of them only). The database is made by `python -m bench.synthetic_runs` in a temporary folder, or taken
from `--runs-root` and `--database-url`. Of each view: the database part, its queries called alone; server time, the
page's script run without a cache; and, if Chromium is installed, time until the first content, the view's own content
and everything in the window show, bytes by web socket, how many of ten browsers at once show nothing within a minute,
how much of each page moves while it loads and how faint its faintest words are, in windows of four widths, light or
dark, what a first visit loads, and how long after a click each page is there. A search is for another word each time,
since results are cached by word.
"""

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from urllib.parse import urlencode

from sqlalchemy import update
from streamlit.logger import set_log_level

from bench import page_browser
from bench.report import Figure, report
from bench.stopwatch import Stopwatch
from bench.synthetic_runs import SyntheticSize, add_made_up_runs, recorded_run
from exgrpo.app import settings
from exgrpo.app.components.widgets import curves
from exgrpo.app.page_list import PAGES, PLACES
from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import Database
from exgrpo.db.ingest import events
from exgrpo.db.queries import buffer, metrics, runs, trajectories, trajectory_list
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.db.rows.trajectories import TrajectoryFacets
from exgrpo.db.tables import models

FULL = SyntheticSize(1000, 2128, 1_000_000)
SHORT = SyntheticSize(5, 100, 2_000)
TIMES_TEN = SyntheticSize(20, 2128, 10_000_000, has_texts=False)
REFRESHED = SyntheticSize(50, 100, 100)
IN_SHORT = 1
"""Pages and windows that a browser opens in the short form, which opens every view once."""
LARGE_RUN = "synthetic-00001"
PAGE_SIZE = 50
MAX_POINTS = 300
COMMON_WORDS = ["the", "we", "is", "of", "and", "to", "so", "that", "let", "then"]
WATCH_SECONDS = 12.0
MAX_VISITS = 3
CHARTS = (curves.PASS_RATES, *curves.CHARTS)
TARGETS = {
    "runs_database_ms": "<= 50",
    "run_all_charts_database_ms": "<= 50",
    "facets_page_database_ms": "<= 30",
    "narrowed_page_database_ms": "<= 150",
    "search_database_ms": "<= 50",
    "open_database_ms": "<= 20",
    "runs_server_ms": "<= 200",
    "chart_server_ms": "<= 300",
    "facets_page_server_ms": "<= 150",
    "search_server_ms": "<= 300",
    "open_server_ms": "<= 100",
}
BUILD_TARGETS = {"build_seconds": "<= 180"}
TEN_TARGETS = {"facets_page_server_ms": "<= 500", "narrowed_page_server_ms": "<= 500"}
BROWSER_TARGETS = {
    "refresh_50_runs_kb": "<= 50",
    "largest_script_kb": "<= 1000",
    "dead_pages": "<= 0",
    "layout_shift": "<= 0.1",
    "contrast": ">= 4.5",
    "cold_requests": "<= 60",
    "cold_mb": "<= 1.8",
}
SEEN_TARGETS = {"first_ms": "<= 1000", "seen_ms": "<= 1500"}
"""Of every view, on two cores that do nothing else."""
NUM_BROWSERS, NUM_BROWSERS_SHORT = 10, 2
WINDOWS = {1440: "light", 1280: "dark", 900: "light", 390: "dark"}
"""Widths of a window, and the colours that pages are looked at in."""


@dataclass(frozen=True, slots=True)
class View:
    """One page at one address: its queries, its address, and the element that shows that it is loaded."""

    name: str
    page: str
    query: Mapping[str, str]
    queries: Sequence[Callable[[Database, int], object]]
    content: str
    changes: Mapping[str, list[str]] = field(default_factory=dict)


_CARD = '[class*="st-key-entry-"]'
_TABLE, _CHART = ".data-table tbody tr", ".js-plotly-plot .main-svg"
_RUN = {"run": LARGE_RUN}
_LIST = _RUN | {"view": "Trajectories"}


def views(trajectory_id: int) -> list[View]:
    """Return what is measured; a query is given the number of its repeat."""
    entropy = TrajectoryFacets(run_id=LARGE_RUN, is_replayed=False, entropy_from=0.05)
    of_run = TrajectoryFacets(LARGE_RUN)
    narrowed = {"facets": "true", "replayed": "never replayed", "entropy_from": "0.05"}

    def searched(repeat: int) -> TrajectoryFacets:
        return TrajectoryFacets(run_id=LARGE_RUN, words=COMMON_WORDS[repeat % len(COMMON_WORDS)])

    def list_of(where: Callable[[int], TrajectoryFacets]) -> list[Callable[[Database, int], object]]:
        return [
            lambda database, repeat: trajectory_list.list_snippets(database, where(repeat), limit=PAGE_SIZE),
            lambda database, repeat: trajectory_list.count_trajectories(database, where(repeat)),
            lambda database, repeat: trajectory_list.count_facets(database, where(repeat)),
        ]

    every_curve = [lambda database, _: metrics.metric_series(database, LARGE_RUN, curves.KEYS, MAX_POINTS)]
    return [
        View("runs", "runs", {}, [lambda database, _: runs.list_runs(database, RunFilter(), limit=100)], _TABLE),
        View("run_all_charts", "run", _RUN, every_curve, _CHART),
        View(
            "facets_page",
            "run",
            _LIST | {"facets": "true"},
            list_of(lambda _: of_run),
            _TABLE,
        ),
        View("narrowed_page", "run", _LIST | narrowed, list_of(lambda _: entropy), _TABLE),
        View("search", "run", _LIST | {"words": "circle"}, list_of(searched)[:2], _TABLE, {"words": COMMON_WORDS}),
        View(
            "open",
            "run",
            _LIST | {"trajectory": str(trajectory_id)},
            [lambda database, _: trajectories.get_trajectory(database, LARGE_RUN, trajectory_id)],
            '[class*="st-key-part-tabs"] [data-testid="stTab"]',
        ),
        View(
            "questions",
            "run",
            _LIST | {"list": "Questions"},
            [
                lambda database, _: trajectory_list.list_questions(database, of_run, limit=PAGE_SIZE),
                lambda database, _: trajectory_list.count_questions(database, of_run),
                lambda database, _: trajectory_list.has_replays(database, LARGE_RUN),
            ],
            _TABLE,
        ),
        View("paper", "methods", {}, [lambda database, _: runs.list_runs(database, RunFilter(), limit=100)], _CARD),
        View(
            "replay_buffer",
            "run",
            _RUN | {"view": "Buffer"},
            [lambda database, _: buffer.bucket_grid(database, LARGE_RUN)],
            _CHART,
        ),
    ]


def main() -> None:
    """Make or open the database, measure, and print the figures."""
    set_log_level("ERROR")  # else every script and cache outside a server warns of it
    options = _options()
    with tempfile.TemporaryDirectory(prefix="pages-") as folder:
        runs_root, database_url = options.runs_root or Path(folder) / "runs", options.database_url
        figures: dict[str, Figure] = {}
        targets = dict(TARGETS)
        if options.runs_root is None:
            size = TIMES_TEN if options.times_ten else SHORT if options.short else FULL
            figures |= _build(runs_root, database_url, size)
            targets |= BUILD_TARGETS
        measured = views(_some_trajectory(runs_root, database_url))
        few = IN_SHORT if options.short else None
        repeats = options.repeats or (1 if options.short else 7)
        if options.times_ten:
            lists = [view for view in measured if f"{view.name}_server_ms" in TEN_TARGETS]
            figures |= _measure(runs_root, database_url, lists, repeats)
            report("pages_times_ten", figures, TEN_TARGETS)
            return
        figures |= _measure(runs_root, database_url, measured, repeats)
        figures |= _measure_charts(runs_root, database_url, repeats)
        if page_browser.find_browser() and not options.no_browser:
            figures |= _visit(runs_root, database_url, measured, min(repeats, MAX_VISITS), few)
            figures |= _refresh(runs_root, Path(folder) / "live")
            targets |= BROWSER_TARGETS
            targets |= {f"{view.name}_{key}": target for view in measured for key, target in SEEN_TARGETS.items()}
        else:
            print("No browser: neither bytes nor time to paint.")
    report("pages", figures, targets)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Time the pages on a large database.")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--short", action="store_true", help="a small database")
    size.add_argument("--times-ten", action="store_true", help="ten million trajectories, lists only")
    parser.add_argument("--repeats", type=int, help="runs of each view")
    parser.add_argument("--runs-root", type=Path, help="a runs root that `python -m bench.synthetic_runs` was used on")
    parser.add_argument("--database-url", help="its database; by default SQLite in the runs root")
    parser.add_argument("--no-browser", action="store_true", help="leave out what needs Chromium")
    return parser.parse_args()


def _build(runs_root: Path, database_url: str | None, size: SyntheticSize) -> dict[str, Figure]:
    print(f"{size.num_runs:,} runs of {size.num_steps:,} steps, about {size.num_trajectories:,} trajectories")
    run_id = recorded_run(runs_root, database_url, print)
    began_at = time.perf_counter()
    add_made_up_runs(runs_root, database_url, size, run_id, lambda _said: None)
    seconds = time.perf_counter() - began_at
    print(f"made in {seconds:.0f} s")
    return {"build_seconds": seconds}


def _some_trajectory(runs_root: Path, database_url: str | None) -> int:
    database = open_database(database_url, runs_root)
    newest = trajectory_list.list_snippets(database, TrajectoryFacets(LARGE_RUN), limit=PAGE_SIZE)
    database.close()
    return newest[-1].trajectory_id


def _measure(runs_root: Path, database_url: str | None, measured: Sequence[View], repeats: int) -> dict[str, Figure]:
    settings.configure(settings.AppSettings(runs_root, database_url))
    database = open_database(database_url, runs_root)
    figures: dict[str, Figure] = {"database": database.engine.dialect.name}
    print(f"{figures['database']}; {repeats} repeats, in ms: median and maximum by the clock, median of computing")
    for view in measured:
        watch = Stopwatch()
        for item in range(repeats):
            with watch.lap():
                for query in view.queries:
                    query(database, item)
        figures |= watch.figures(f"{view.name}_database_ms")
        watch = page_browser.time_script(view.page, view.query, view.changes, repeats)
        figures |= watch.figures(f"{view.name}_server_ms")
    database.close()
    return figures


def _measure_charts(runs_root: Path, database_url: str | None, repeats: int) -> dict[str, float]:
    database = open_database(database_url, runs_root)
    slowest = max((_time_chart(database, chart, repeats) for chart in CHARTS), key=lambda watch: median(watch.clock_ms))
    database.close()
    return slowest.figures("chart_server_ms")


def _time_chart(database: Database, chart: curves.Chart, repeats: int) -> Stopwatch:
    """Return the times of one chart: its series read and thinned out, its figure made and written as it is sent."""
    watch = Stopwatch()
    for _ in range(repeats):
        with watch.lap():
            keys = [curve.key for curve in chart.curves]
            figure = curves.figure_of(chart, metrics.metric_series(database, LARGE_RUN, keys, MAX_POINTS))
            if figure is not None:
                figure.to_json()
    return watch


def _visit(
    runs_root: Path, database_url: str | None, measured: Sequence[View], repeats: int, few: int | None
) -> dict[str, Figure]:
    """Print and return when a browser shows each view, and the most that one of them sends when it is opened."""
    figures: dict[str, Figure] = {}
    largest = 0
    with page_browser.served(runs_root, database_url) as link, page_browser.visits(link) as browser:
        for view in measured:
            visits = [browser.visit(_address(view.page, view.query), view.content) for _ in range(repeats)]
            first, seen = (median(getattr(visit, key) for visit in visits) for key in SEEN_TARGETS)
            painted, sent = median(visit.painted_ms for visit in visits), max(visit.num_bytes for visit in visits)
            print(
                f"{view.name:<16} first content {first:6.0f} ms, painted {painted:6.0f} ms, everything in view "
                f"{seen:6.0f} ms, {sent / 1000:8.1f} kB by web socket"
            )
            figures |= {f"{view.name}_first_ms": first, f"{view.name}_paint_ms": painted, f"{view.name}_seen_ms": seen}
            largest = max(largest, sent)
        num_browsers = NUM_BROWSERS if few is None else NUM_BROWSERS_SHORT
        crowd = browser.crowd(_address(measured[0].page, measured[0].query), measured[0].content, num_browsers)
        slowest = max(crowd, default=None)
        print(f"{num_browsers} browsers at once: {len(crowd)} show the list of runs, the last after {slowest} ms")
        figures |= {"dead_pages": num_browsers - len(crowd), "crowd_seen_ms": slowest}
        looks = {
            f"{address} at {width}, {scheme}": browser.look(address, width, scheme)
            for address in [_address(page, _RUN | query) for page, query in PLACES][:few]
            for width, scheme in list(WINDOWS.items())[:few]
        }
        shift = max(looks, key=lambda place: looks[place].shift)
        faint = min(looks, key=lambda place: looks[place].contrast)
        print(f"layout shift: at most {looks[shift].shift:.3f}, of {shift}")
        print(f"contrast: at least {looks[faint].contrast:.2f}, of {looks[faint].faintest!r}, {faint}")
        figures |= {"layout_shift": looks[shift].shift, "contrast": looks[faint].contrast}
        figures["cold_requests"], num_bytes = browser.cold_load()
        figures["cold_mb"] = num_bytes / 1e6
        print(f"cold load: {figures['cold_requests']} requests, {num_bytes / 1e6:.2f} MB")
        for page in PAGES[1:][:few]:
            milliseconds = figures[f"{page.name}_click_ms"] = median(browser.click(page) for _ in range(repeats))
            print(f"from a click to all in view: {page.title:<17} {milliseconds:6.0f} ms")
    return figures | {"largest_script_kb": largest / 1000}


def _address(page: str, query: Mapping[str, str]) -> str:
    return f"{'' if page == 'runs' else page}?{urlencode(query)}"


def _refresh(runs_root: Path, live_root: Path) -> dict[str, Figure]:
    """Print and return the kB that the runs list sends for a refresh while fifty runs continue."""
    recorded = next(path for path in runs_root.iterdir() if (path / "spec.json").is_file())
    shutil.copytree(recorded, live_root / recorded.name)
    add_made_up_runs(live_root, None, REFRESHED, recorded.name, lambda _said: None)
    database = open_database(None, live_root)
    for number in range(1, REFRESHED.num_runs + 1):
        events.set_status(database, f"synthetic-{number:05d}", "running")
    table = models.runs

    def advance() -> None:
        values = {"step": table.c.step + 1, "last_event_at": datetime.now(UTC)}
        database.write(lambda connection: connection.execute(update(table).values(values)))

    with page_browser.served(live_root, None) as link, page_browser.visits(link) as browser:
        sizes = browser.watch("", _TABLE, WATCH_SECONDS, advance)
    database.close()
    print(f"refresh with 50 live runs: {median(sizes) / 1000:.1f} kB, at most {max(sizes) / 1000:.1f} kB")
    return {"refresh_50_runs_kb": median(sizes) / 1000, "refresh_50_runs_kb_max": max(sizes) / 1000}


if __name__ == "__main__":
    main()
