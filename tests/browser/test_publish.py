"""The static page of runs, opened from its file in a real browser: no server, nothing loaded from elsewhere."""

import subprocess
import sys

import pytest

from tests.app import played, recorded
from tests.browser.conftest import Watched
from tests.jobs.cli.invoked import exgrpo

MAX_BYTES = 2_500_000


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    played.play(root, played.FINISHED)
    folder = tmp_path_factory.mktemp("web") / "page"
    exgrpo(root, "publish", "play-finished", folder)
    return root, folder


@pytest.mark.parametrize("width", [1440, 390])
def test_the_page_draws_every_chart_from_a_file(browser, published, width):
    _, folder = published
    page = browser.new_page(viewport={"width": width, "height": 900})
    watched = Watched(page, "file://")
    page.goto((folder / "index.html").as_uri())
    page.get_by_role("heading", name="whole replay").wait_for()
    charts = page.locator("[data-chart]")
    assert charts.count() > 15
    for chart in charts.all():
        chart.scroll_into_view_if_needed()
        chart.locator(".main-svg").first.wait_for()
    assert page.locator("details .text span[title*=entropy]").count() > 10
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert watched.errors == []
    page.close()


def test_text_of_models_and_files_is_shown_and_never_run(browser, tmp_path):
    recorded.record_all(tmp_path)
    words = ["--runs-root", str(tmp_path), str(tmp_path / "page"), "run-finished", "run-hostile"]
    subprocess.run([sys.executable, "-m", "exgrpo.app.publishing", *words], check=True)
    page = browser.new_page()
    watched = Watched(page, "file://")
    page.goto((tmp_path / "page" / "index.html").as_uri())
    page.locator(".main-svg").first.wait_for()
    assert "<img src=x onerror=alert(1)>" in page.inner_text("body")
    assert page.locator("img").count() == 0
    assert watched.errors == []
    page.close()


def test_the_film_shows_the_buffer_after_the_chosen_step(browser, published):
    _, folder = published
    page = browser.new_page()
    page.goto((folder / "index.html").as_uri())
    film = page.locator("figure", has_text="Film of the buffer").locator("[data-chart]")
    film.locator(".main-svg").first.wait_for()
    sizes = "element => Plotly.animate(element, ['7'], {mode: 'immediate'}).then(() => [...element.data[0].y])"
    # Step 7 of the played run: 0, 3, 3 and 5 questions with 0 to 3 correct rollouts.
    assert film.evaluate(sizes) == [0, 3, 3, 5]
    page.close()


def test_the_folder_is_small_and_readable_and_is_never_written_over(published, tmp_path):
    root, folder = published
    files = list(folder.iterdir())
    assert {path.name for path in files} == {"index.html", "charts.js"}
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    assert all(path.stat().st_mode & 0o044 == 0o044 for path in files)
    assert str(folder) in exgrpo(root, "publish", "play-finished", folder, code=2)
    assert "nobody" in exgrpo(root, "publish", "nobody", tmp_path / "new", code=2)
    assert not (tmp_path / "new").exists()
