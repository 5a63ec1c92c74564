import re

import pytest
from streamlit.proto.BackMsg_pb2 import BackMsg

from tests.app import recorded
from tests.browser.clicks import click_until

pytestmark = [pytest.mark.browser, pytest.mark.slow]

CONTRAST = """part => {
    const parse = (colour) => colour.match(/[\\d.]+/g).map(Number);
    const light = (channel) => channel <= 0.03928 ? channel / 12.92 : ((channel + 0.055) / 1.055) ** 2.4;
    const luminance = ([red, green, blue]) =>
        0.2126 * light(red / 255) + 0.7152 * light(green / 255) + 0.0722 * light(blue / 255);
    let behind = [0, 0, 0], cover = 0;
    for (let element = part; element && cover < 1; element = element.parentElement) {
        const [red, green, blue, alpha = 1] = parse(getComputedStyle(element).backgroundColor);
        behind = behind.map((sum, i) => sum + (1 - cover) * alpha * [red, green, blue][i]);
        cover += (1 - cover) * alpha;
    }
    const values = [luminance(parse(getComputedStyle(part).color)), luminance(behind)].sort((a, b) => b - a);
    return (values[0] + 0.05) / (values[1] + 0.05);
}"""
"""How much the words of an element stand out from what is behind them, by WCAG; 4.5 can be read."""


def test_printed_link_opens_the_list_and_the_token_leaves_the_address(open_page):
    watched = open_page("/")
    watched.page.get_by_role("heading", name="Runs").wait_for()
    watched.page.get_by_test_id("stDataFrame").wait_for()
    assert "token" not in watched.page.url
    watched.page.wait_for_function("() => document.title === 'Runs · ExGRPO Workbench'")
    assert watched.errors == []


def test_each_tab_is_named_after_what_its_page_shows(open_page):
    page = open_page("/run?run=run-finished").page
    page.wait_for_function("() => document.title === 'exgrpo whole · Run · ExGRPO Workbench'")
    assert page.get_by_role("heading", level=1).inner_text() == "exgrpo whole"
    page.get_by_role("link", name="Compare").first.click()
    page.wait_for_function("() => document.title === 'Compare · ExGRPO Workbench'")


def test_buttons_of_a_run_are_whole(open_page):
    page = open_page("/run?run=run-failed").page
    page.locator(".st-key-run-controls").get_by_role("button", name="Branch").first.wait_for()
    page.wait_for_function("""() => [...document.querySelectorAll(".st-key-run-controls *")]
        .every((part) => getComputedStyle(part).overflowX === "visible" || part.scrollWidth <= part.clientWidth)""")


def test_what_is_asked_is_displayed_at_once_and_a_toast_covers_no_button(open_page):
    page = open_page("/run?run=run-failed").page
    page.locator(".st-key-run-resume button:visible").click()
    page.locator(".st-key-run-asked button").first.wait_for()
    page.locator(".st-key-run-resume button:visible").wait_for(state="hidden")
    page.locator(".stMarkdownBadge", has_text="resuming").first.wait_for()
    page.get_by_role("button", name="Notes").first.click()
    page.get_by_label("New tag").fill("baseline")
    page.get_by_label("New tag").press("Enter")
    toast = page.get_by_test_id("stToast")
    toast.wait_for()
    toast.evaluate("toast => Promise.all(toast.getAnimations().map((animation) => animation.finished))")
    assert toast.bounding_box()["y"] > page.viewport_size["height"] / 2


def test_click_on_a_row_opens_the_run(open_page):
    watched = open_page("/?q=run-finished")
    click_until(watched.page, 160, 56, r"/run\?.*run=run-finished")
    watched.page.get_by_text("exgrpo whole").first.wait_for()
    assert watched.errors == []


def test_a_tables_toolbar_leaves_the_export_menu_free(open_page):
    page = open_page("/?q=run-finished").page
    page.get_by_test_id("stDataFrame").hover()
    page.get_by_test_id("stElementToolbar").locator("button").first.wait_for()
    page.get_by_role("button", name="Export").click(trial=True)


def test_deep_link_shows_the_same_view_in_both_themes(open_page):
    watched = open_page("/run?run=run-finished&view=Replay+buffer")
    for scheme, ground in {"light": "rgb(255, 255, 255)", "dark": "rgb(14, 20, 32)"}.items():
        watched.page.emulate_media(color_scheme=scheme)
        watched.page.locator(".js-plotly-plot").nth(1).wait_for()
        watched.page.wait_for_function(
            "ground => getComputedStyle(document.querySelector('.stApp')).backgroundColor === ground", arg=ground
        )
    assert watched.errors == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_on_and_of_the_accent_can_be_read_in_both_themes(open_page, scheme):
    page = open_page("/compare?runs=run-finished,run-on-policy", color_scheme=scheme).page
    tag, chosen = page.locator("[data-tag] span").first, page.locator('[role="radio"][aria-checked="true"] p').first
    chosen.wait_for()
    contrasts = [tag.evaluate(CONTRAST), chosen.evaluate(CONTRAST)]
    page.goto(page.url.partition("/compare")[0])
    button = page.locator(".st-key-to-new-run button p")
    button.wait_for()
    assert min([*contrasts, button.evaluate(CONTRAST)]) >= 4.5


def test_charts_of_a_run_are_drawn_when_scrolled_to_and_stay_while_it_refreshes(open_page):
    watched = open_page("/run?run=run-running")
    places = watched.page.locator("[class*=st-key-card-]:has([data-testid=stFullScreenFrame])")
    charts = watched.page.locator(".js-plotly-plot")
    last = places.nth(13)
    charts.first.wait_for()
    last.wait_for()
    assert last.locator(charts).count() == 0
    last.scroll_into_view_if_needed()
    last.locator(charts).wait_for()
    num_drawn = charts.count()
    watched.page.wait_for_timeout(5000)
    assert num_drawn <= charts.count() <= places.count() == 14
    assert watched.errors == []


def test_open_view_survives_the_refresh_and_a_reload(open_page):
    watched = open_page("/run?run=run-running")
    watched.page.get_by_role("tab", name="Log").click()
    watched.page.get_by_text("step 300 of exgrpo live").wait_for()
    watched.page.wait_for_timeout(4500)
    assert watched.page.get_by_text("step 300 of exgrpo live").is_visible()
    assert "view=Log" in watched.page.url
    watched.page.reload()
    watched.page.get_by_text("step 300 of exgrpo live").wait_for()
    assert watched.errors == []


def test_form_checks_while_one_types_and_launches(open_page):
    watched = open_page("/new_run?section=Algorithm")
    field = watched.page.get_by_label("Mini batch size")
    field.fill("5")
    field.press("Enter")
    watched.page.get_by_text("algorithm.mini_batch_size: expected a divisor").wait_for()
    assert watched.page.get_by_role("button", name="Launch run").is_disabled()
    field.fill("4")
    field.press("Enter")
    watched.page.get_by_text("--set algorithm.mini_batch_size=4").first.wait_for()
    watched.page.get_by_role("button", name="Launch run").click()
    watched.page.wait_for_url(re.compile(r"/run\?run="))
    assert watched.errors == []


def test_back_leads_to_the_list(open_page):
    watched = open_page("/")
    watched.page.get_by_role("link", name="New run").click()
    watched.page.get_by_role("heading", name="New run").wait_for()
    watched.page.go_back()
    watched.page.get_by_role("heading", name="Runs").wait_for()
    assert watched.errors == []


def test_browser_without_the_token_sees_only_the_locked_page(browser, workbench):
    context = browser.new_context()
    page = context.new_page()
    response = page.goto(workbench.origin)
    assert response.status == 403
    assert "printed" in page.inner_text("body")
    context.close()


def test_recorded_runs_are_all_listed(open_page):
    watched = open_page("/")
    watched.page.get_by_text(re.compile(r"of \d+ runs, \d+ active")).wait_for()
    shown = int(re.search(r"of (\d+) runs", watched.page.inner_text("body"))[1])
    assert shown >= len(recorded.ALL)


def test_a_refresh_of_the_page_before_that_comes_late_leaves_the_new_one(open_page):
    watched = open_page("/")
    page = watched.page
    servers, refreshes = [], []

    def between(socket):
        server = socket.connect_to_server()
        servers.append(server)

        def pass_on(message):
            if BackMsg.FromString(message).rerun_script.is_auto_rerun:
                refreshes.append(message)
            server.send(message)

        socket.on_message(pass_on)

    def wait_for_refreshes(number):
        refreshes.clear()
        while len(refreshes) < number:
            page.wait_for_timeout(100)

    page.route_web_socket(re.compile("/_stcore/stream"), between)
    page.reload()
    page.get_by_text(re.compile(r"of \d+ runs, \d+ active")).wait_for()
    wait_for_refreshes(4)
    of_the_list = refreshes[:]
    page.get_by_role("link", name="New run").click()
    page.get_by_role("button", name="Launch run").wait_for()
    for message in of_the_list:
        servers[-1].send(message)
    wait_for_refreshes(4)
    assert page.get_by_role("button", name="Launch run").is_visible()
    assert watched.errors == []


def test_a_page_whose_front_end_lost_count_of_its_parts_comes_back_by_itself(open_page):
    watched = open_page("/run?run=run-finished&view=Log")
    watched.page.get_by_text("step 300 of exgrpo whole").wait_for()
    with watched.page.expect_event("pageerror"):
        watched.page.evaluate("""
            document.getElementById("root").remove();
            setTimeout(() => { throw new Error("Bad delta path index 1 (should be between [0, 0])"); });
        """)
    watched.page.get_by_text("step 300 of exgrpo whole").wait_for()
    assert len(watched.errors) == 1
