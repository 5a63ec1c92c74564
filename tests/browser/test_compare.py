"""Comparing runs in a browser: ticks, a pasted link, downloads, and the zoom of all charts."""

import csv
import io
import re

import pytest

from tests.browser.clicks import IDLE, download, rows

pytestmark = [pytest.mark.browser, pytest.mark.slow]

RUNS = "/compare?runs=run-finished,run-on-policy"


def test_two_ticked_runs_are_compared_a_pasted_link_shows_the_same_and_back_leads_to_the_list(open_page):
    watched = open_page("/?q=whole")
    page = watched.page
    for row in (0, 1):
        rows(page).nth(row).get_by_role("checkbox").check()
        page.locator(".st-key-archive button:enabled").first.wait_for()
        page.locator(IDLE).wait_for()
    page.get_by_role("link", name="Compare 2 runs").click()
    page.wait_for_url(re.compile(r"/compare\?.*runs="))
    page.locator("[class*=st-key-card-]").nth(5).wait_for()
    page.get_by_role("button", name="Charts over steps").click()
    page.get_by_role("radio", name="Fresh rollouts").click()
    page.wait_for_url(re.compile("x=Fresh"))
    page.get_by_text("fresh rollouts").first.wait_for()
    pasted = page.url
    again = open_page(pasted[pasted.index("/compare") :])
    again.page.locator("[class*=st-key-card-]").nth(5).wait_for()
    for view in (page, again.page):
        view.locator(".st-key-legend").get_by_text("exgrpo whole").first.wait_for()
    legends = [view.locator(".st-key-legend").inner_text() for view in (page, again.page)]
    assert legends[0] == legends[1]
    assert legends[0].count("whole") == 2
    assert again.page.url == pasted
    page.go_back()
    page.go_back()
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    assert watched.errors + again.errors == []


def test_table_and_figure_are_downloaded_and_a_zoom_of_one_chart_is_that_of_all(open_page):
    watched = open_page(RUNS)
    page = watched.page
    page.locator("[class*=st-key-card-]").nth(5).wait_for()
    page.get_by_text("Settings that differ").wait_for()
    page.locator(".st-key-export-comparison button").first.click()
    text, name = download(page, "CSV")
    assert name == "comparison.csv"
    assert [row["Run"] for row in csv.DictReader(io.StringIO(text))] == ["exgrpo whole", "on-policy whole"]
    page.keyboard.press("Escape")
    page.locator("[class*='st-key-export-compare-policy-entropy'] button").first.click()
    text, name = download(page, "CSV")
    assert name == "entropy-as-drawn.csv"
    assert text.splitlines()[0] == "step,exgrpo whole,on-policy whole"
    assert len(text.splitlines()) == 31
    page.keyboard.press("Escape")
    charts = page.locator(".js-plotly-plot")
    charts.first.scroll_into_view_if_needed()
    charts.nth(1).wait_for()
    box = charts.first.bounding_box()
    charts.first.hover()
    page.mouse.move(box["x"] + 0.4 * box["width"], box["y"] + 0.5 * box["height"])
    page.mouse.down()
    page.mouse.move(box["x"] + 0.7 * box["width"], box["y"] + 0.5 * box["height"], steps=6)
    page.mouse.up()
    page.wait_for_url(re.compile(r"zoom="))
    page.wait_for_function("""() => {
        const plots = [...document.querySelectorAll(".js-plotly-plot")];
        return new Set(plots.map((plot) => String(plot.layout.xaxis.range))).size === 1;
    }""")
    page.go_back()
    page.wait_for_url(re.compile(r"^((?!zoom).)*$"))
    assert watched.errors == []
