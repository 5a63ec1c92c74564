import csv
import io
import re

import pytest

from tests.browser.downloads import download

pytestmark = [pytest.mark.browser, pytest.mark.slow]

HEADER, ROW = 38, 38


def tick(page, *rows):
    """Tick rows of the list of runs by their place."""
    table = page.get_by_test_id("stDataFrame").first
    table.wait_for()
    page.wait_for_timeout(3000)
    for row in rows:
        table.click(position={"x": 16, "y": HEADER + ROW * row + ROW // 2})
        page.wait_for_timeout(800)


@pytest.mark.parametrize("width", [1280, 1440])
@pytest.mark.parametrize("path", ["/run?run=run-finished", "/compare?runs=run-finished,run-on-policy"])
def test_what_chooses_the_curves_is_in_one_row(open_page, path, width):
    page = open_page(path).page
    page.set_viewport_size({"width": width, "height": 900})
    first, last = page.get_by_role("radio", name="Steps"), page.get_by_role("button", name="Views")
    last.wait_for()
    page.wait_for_function("() => document.fonts.status === 'loaded'")
    boxes = [part.bounding_box() for part in (first, last)]
    middles = [box["y"] + box["height"] / 2 for box in boxes]
    assert abs(middles[0] - middles[1]) < boxes[1]["height"]


def test_two_ticked_runs_are_compared_a_pasted_link_shows_the_same_and_back_leads_to_the_list(open_page):
    watched = open_page("/?q=whole")
    page = watched.page
    tick(page, 0, 1)
    page.get_by_role("link", name="Compare 2 runs").click()
    page.wait_for_url(re.compile(r"/compare\?.*runs="))
    page.locator("[class*=st-key-card-]").nth(7).wait_for()
    page.get_by_role("radio", name="Fresh rollouts").click()
    page.wait_for_url(re.compile("x=Fresh"))
    page.get_by_text("fresh rollouts").first.wait_for()
    pasted = page.url
    again = open_page(pasted[pasted.index("/compare") :])
    again.page.locator("[class*=st-key-card-]").nth(7).wait_for()
    for view in (page, again.page):
        view.locator(".st-key-legend").get_by_text("exgrpo whole").first.wait_for()
    legends = [view.locator(".st-key-legend").inner_text() for view in (page, again.page)]
    assert legends[0] == legends[1]
    assert legends[0].count("whole") == 2
    assert again.page.url == pasted
    page.go_back()
    page.go_back()
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    assert watched.errors == []
    assert again.errors == []


def test_table_and_figure_are_downloaded(open_page):
    watched = open_page("/compare?runs=run-finished,run-on-policy")
    page = watched.page
    page.locator("[class*=st-key-card-]").nth(7).wait_for()
    page.get_by_text("Settings that differ").wait_for()
    page.locator(".st-key-export-comparison button").first.click()
    text, name = download(page, "CSV")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert name == "comparison.csv"
    assert [row["Run"] for row in rows] == ["exgrpo whole", "on-policy whole"]
    assert "\\toprule" in download(page, "LaTeX")[0]
    page.keyboard.press("Escape")
    page.locator("[class*='st-key-export-compare-policy-entropy'] button").first.click()
    text, name = download(page, "CSV")
    assert name == "entropy.csv"
    assert text.splitlines()[0] == "step,exgrpo whole,on-policy whole"
    assert len(text.splitlines()) == 31
    assert watched.errors == []


def test_draft_keeps_the_form_and_the_audit_log_keeps_what_was_done(open_page):
    watched = open_page("/new_run")
    page = watched.page
    page.get_by_role("button", name="Save as draft").wait_for()
    page.locator("[data-testid=stApp][data-test-script-state=notRunning]").wait_for()
    page.get_by_role("button", name="Save as draft").click()
    page.get_by_text("Saved as chains ExGRPO").wait_for()
    page.get_by_role("button", name=re.compile("^.*Drafts")).click()
    page.get_by_role("button", name="chains ExGRPO").click()
    page.wait_for_url(re.compile("draft=chains"))
    page.get_by_text("Starts from the values of a draft").wait_for()
    page.goto(re.sub(r"/new_run.*", "/system?view=Audit+log", page.url))
    page.get_by_test_id("stDataFrame").first.wait_for()
    assert watched.errors == []


def test_a_zoom_of_one_chart_is_that_of_all_and_in_the_address(open_page):
    page = open_page("/compare?runs=run-finished,run-on-policy").page
    charts = page.locator(".js-plotly-plot")
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
