"""The script of all charts in a real browser, by itself."""

import gzip
import json
import re
import struct
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest

from exgrpo.app import theme
from exgrpo.app.components.widgets import chart, figures
from exgrpo.app.components.widgets.curve_view import Line
from exgrpo.app.serving import shell
from exgrpo.app.theme import Look

pytestmark = pytest.mark.browser

START = """async (source) => {
    const script = await import(URL.createObjectURL(new Blob([source], {type: "text/javascript"})));
    window.show = (parent, data) => script.default(
        {data: new TextEncoder().encode(data), parentElement: document.getElementById(parent)});
    window.print = () => { window.isPrinted = true; };
}"""
BODY = "<body class=stApp style='margin:0'><div id=files></div><div id=chart style='width:600px;height:250px'></div>"


@pytest.fixture
def page(browser):
    page = browser.new_page(viewport={"width": 700, "height": 420})
    page.set_content(BODY)
    page.evaluate(START, gzip.decompress(chart.script()).decode())
    yield page
    page.close()


def drawn(page, num_steps, num_curves=3):
    """Draw curves: the last is the highest. The first is named curve 0."""
    figure = figures.new_figure()
    steps = np.arange(num_steps, dtype=np.float64)
    for curve in range(num_curves):
        figures.add_line(figure, f"curve {curve}", Line(steps, steps + curve), Look(theme.DARK.replay))
    given = {"key": "one", "alt": "Lines that rise", "hasTools": True, "isDark": False}
    page.evaluate("data => show('chart', data)", json.dumps(given | {"figure": json.loads(figure.to_json())}))
    page.locator(".js-plotly-plot .scatterlayer path").first.wait_for(state="attached")
    return page.locator(".js-plotly-plot")


def values_under_pointer(page):
    return [text.replace("\xa0", " ") for text in page.locator(".hoverlayer .legendtext").all_text_contents()]


def test_new_data_keeps_zoom_hidden_curves_and_what_is_under_the_pointer(page):
    plot = drawn(page, 20)
    assert page.get_by_role("figure", name="Lines that rise").count() == 1
    page.locator(".legendtoggle").first.click()
    page.wait_for_function("document.querySelector('.js-plotly-plot').data[0].visible === 'legendonly'")
    plot.evaluate("plot => Plotly.relayout(plot, {'xaxis.range': [2, 12]})")
    page.mouse.move(300, 160)
    page.locator(".hoverlayer .legendtext").first.wait_for()
    before = values_under_pointer(page)
    drawn(page, 40)
    page.wait_for_function("document.querySelector('.js-plotly-plot').calcdata[1].length === 40")
    assert plot.evaluate("plot => [plot.layout.xaxis.range, plot.data[0].visible]") == [[2, 12], "legendonly"]
    assert values_under_pointer(page) == before
    assert len(before) == 2


@pytest.mark.parametrize("rangemode", ["tozero", "normal"])
@pytest.mark.parametrize(
    "curves",
    [
        ([0.1, 0.56], [0.1, 0.39]), ([812.0, 751.0], [120.0, 3.0]), ([2.0, 93.1], [95.2, 98.7]),
        ([-3.2, 1.0], [-3.0, -1.0]), ([7.0, 7.0], [4.0, 4.0]),
    ],
)  # fmt: skip
def test_the_vertical_axis_ends_at_ticks_beyond_all_values_that_show(page, rangemode, curves):
    figure = figures.new_figure(y={"rangemode": rangemode})
    for number, values in enumerate(curves):
        line = Line(np.arange(2.0), np.array(values))
        figures.add_line(figure, f"curve {number}", line, Look(theme.DARK.replay))
    given = {"key": "one", "alt": "Lines", "hasTools": True, "isDark": False, "figure": json.loads(figure.to_json())}
    page.evaluate("data => show('chart', data)", json.dumps(given))

    def wait_for_ends(values):
        low = min(values + [0.0] * (rangemode == "tozero"))
        page.wait_for_function(
            """([low, high]) => {
                const {dtick, range: [first, last]} = document.querySelector(".js-plotly-plot")._fullLayout.yaxis;
                const below = Math.floor(low / dtick + 1e-6) * dtick, above = Math.ceil(high / dtick - 1e-6) * dtick;
                const isNear = (one, other) => one - other > -1e-6 * dtick && one - other < 3 * dtick;
                return isNear(below, first) && isNear(last, above);
            }""",
            arg=[low, max(values + [0.0] * (rangemode == "tozero"))],
        )  # fmt: skip

    page.set_default_timeout(20_000)
    page.locator(".js-plotly-plot .scatterlayer path").first.wait_for(state="attached")
    wait_for_ends([*curves[0], *curves[1]])
    page.locator(".legendtoggle").first.click()
    wait_for_ends(curves[1])


def test_a_change_of_the_theme_asks_once_for_the_page_in_the_colours_of_the_new_one(page):
    page.evaluate("numAsked = 0; addEventListener('popstate', () => { numAsked += 1; })")
    drawn(page, 20)
    assert page.evaluate("numAsked") == 0
    page.evaluate("document.body.style.colorScheme = 'dark'; document.body.className = 'stApp dark'")
    page.wait_for_function("numAsked === 1")
    drawn(page, 21)
    assert page.evaluate("numAsked") == 1


def test_the_box_of_values_is_in_order_of_value_and_whole_in_the_window(page):
    drawn(page, 20, num_curves=16)
    page.mouse.move(300, 200)
    page.locator(".hoverlayer .legendtext").first.wait_for()
    numbers = [int(re.search(r"curve (\d+)", text)[1]) for text in values_under_pointer(page)]
    assert numbers == sorted(range(16), reverse=True)
    box = page.locator(".hoverlayer .legend").bounding_box()
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= 420


def test_tools_are_over_neither_legend_nor_curves_and_are_reached_by_keys(page):
    plot = drawn(page, 20)
    tools = page.locator(".modebar-btn")
    assert tools.count() == 6
    assert {tool.evaluate("tool => tool.tagName") for tool in tools.all()} == {"BUTTON"}
    page.add_style_tag(content=".chart .modebar-container { top: -18px !important }")
    (bar, legend) = (page.locator(part).bounding_box() for part in (".modebar", ".legend .bg"))
    assert bar["y"] + bar["height"] <= max(legend["y"], plot.bounding_box()["y"] + 8)


@pytest.fixture
def saved(page):
    """A chart in dark colours, and the buttons of its files."""
    drawn(page, 20)
    given = {"of": "one", "title": "Rises", "unit": "metres above π; band of seeds", "name": "rises"}
    colours = {theme.DARK.replay: theme.LIGHT.replay}
    page.evaluate("data => show('files', data)", json.dumps(given | {"colours": colours}, separators=(",", ":")))
    return page


def test_svg_and_png_are_on_white_with_title_unit_axis_and_legend(saved):
    with saved.expect_download() as download:
        saved.get_by_role("button", name="SVG").click()
    assert download.value.suggested_filename == "rises.svg"
    text = unquote(download.value.path().read_text())
    shown = re.findall(r"<text[^>]*>([^<]+)</text>", text)
    assert {"Rises", "metres above π", "band of seeds", "step", "curve 0", "curve 2"} <= {*shown}
    red, green, blue = (int(theme.LIGHT.replay[at : at + 2], 16) for at in (1, 3, 5))
    assert f"rgb({red}, {green}, {blue})" in text
    assert "rgb(255, 255, 255)" in text
    with saved.expect_download() as download:
        saved.get_by_role("button", name="PNG").click()
    assert struct.unpack(">II", download.value.path().read_bytes()[16:24]) == (1440, 840)


def test_pdf_is_the_print_of_the_figure_alone_on_a_page_of_its_size(saved):
    saved.add_style_tag(
        content="@media print { body:has(> #chart-on-paper) > :not(#chart-on-paper) { display: none } }"
    )
    saved.get_by_role("button", name="PDF").click()
    saved.wait_for_function("window.isPrinted")
    paper = saved.pdf(prefer_css_page_size=True)
    assert re.findall(rb"/MediaBox \[([^]]*)\]", paper) == [b"0 0 540 315.12"]
    assert b"/Subtype /Image" not in paper
    assert saved.locator("#chart-on-paper").count() == 0


def test_a_zoom_leaves_the_page_where_it_was_scrolled(page):
    page.evaluate(Path(shell.__file__).with_name("history.js").read_text())
    page.evaluate("""() => {
        const main = Object.assign(document.createElement("div"), {style: "height: 300px; overflow: auto"});
        main.dataset.testid = "stMain";
        main.append(Object.assign(document.createElement("div"), {style: "height: 3000px"}));
        document.body.append(main);
        main.scrollTop = 400;
        dispatchEvent(new PopStateEvent("popstate"));
    }""")
    page.wait_for_timeout(300)
    assert page.evaluate("document.querySelector('[data-testid=stMain]').scrollTop") == 400
