"""What only a browser shows of pages: titles, layout, colours, charts as one scrolls, refreshes, and recovery."""

import re

import pytest

from bench.page_browser import ADD_SHIFTS, CONTRAST
from exgrpo.app.components.widgets import figures
from tests.browser.clicks import IDLE, Between, open_row, rows, wait_for_value

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_a_click_on_a_row_opens_the_run_and_the_table_covers_no_button(open_page):
    watched = open_page("/?q=run-finished")
    page = watched.page
    for width in (390, 1440):
        page.set_viewport_size({"width": width, "height": 900})
        rows(page).first.hover()
        for name in ("Export", "Columns"):
            page.get_by_role("button", name=name, exact=True).click(trial=True)
    open_row(page, r"/run\?.*run=run-finished")
    page.wait_for_function("() => document.title === 'exgrpo whole · Run · ExGRPO Workbench'")
    page.get_by_role("heading", level=1, name="exgrpo whole", exact=True).wait_for()
    assert watched.errors == []


@pytest.mark.parametrize("view", ["Log", "Configuration", "Reasoning"])
def test_the_chosen_tab_is_in_the_window_of_a_phone(open_page, view):
    page = open_page(f"/run?run=run-finished&view={view}").page
    page.set_viewport_size({"width": 390, "height": 844})
    page.reload()
    page.get_by_role("tab", name=view, selected=True).wait_for()
    page.wait_for_function("""() => [...document.querySelectorAll("[role=tab][aria-selected=true]")].every((tab) => {
        const {left, right} = tab.getBoundingClientRect(), strip = tab.parentElement.getBoundingClientRect();
        return left >= strip.left - 1 && right <= strip.right + 1;
    })""")


def test_the_list_of_all_kinds_of_runs_is_no_wider_than_the_page_and_has_seven_controls_before_it(open_page):
    page = open_page("/?q=run-finished").page
    rows(page).first.wait_for()
    page.wait_for_function("""() => {
        const {scrollWidth, clientWidth} = document.querySelector(".data-table");
        return scrollWidth <= clientWidth;
    }""")
    page.locator(IDLE).wait_for()
    kinds = ("stButton", "stPopover", "stTextInput", "stSelectbox", "stButtonGroup")
    controls = ", ".join(f"[data-testid=stMain] [data-testid={kind}]" for kind in kinds)
    assert page.locator(controls).filter(visible=True).count() == 7


def test_buttons_of_a_run_are_whole_what_is_asked_is_displayed_at_once_and_a_toast_covers_no_button(open_page):
    page = open_page("/run?run=run-failed").page
    page.locator(".st-key-run-controls").get_by_role("button", name="Branch").first.wait_for()
    page.wait_for_function("""() => [...document.querySelectorAll(".st-key-run-controls *")]
        .every((part) => getComputedStyle(part).overflowX === "visible" || part.scrollWidth <= part.clientWidth)""")
    page.locator(".st-key-run-resume button:visible").click()
    page.locator(".st-key-run-asked button").first.wait_for()
    page.locator(".st-key-run-resume button:visible").wait_for(state="hidden")
    page.locator(".stMarkdownBadge", has_text="resuming").first.wait_for()
    page.get_by_role("button", name="Notes").first.click()
    page.get_by_label("New tag").fill("baseline")
    page.get_by_label("New tag").press("Enter")
    toast = page.get_by_test_id("stToast").filter(has_text="Saved")  # that of the click before may still be there
    toast.wait_for()
    page.wait_for_function("toast => toast.getBoundingClientRect().top > innerHeight / 2", arg=toast.element_handle())


def test_both_themes_have_their_ground_and_words_on_and_of_the_accent_can_be_read_after_a_change_too(open_page):
    page = open_page("/compare?runs=run-finished,run-on-policy").page
    chosen = '[role="radio"][aria-checked="true"] p'
    caption, start = "[data-testid=stCaptionContainer] p", page.url.partition("/compare")[0]
    of_pages = {
        page.url: ("[data-tag] span", chosen, ".xtick text"),
        start: (chosen, ".st-key-to-new-run button p", caption),
        f"{start}/benchmarks": (caption, ".stHtml td span"),
    }
    for address, parts in of_pages.items():
        page.goto(address)
        page.locator(parts[0]).first.wait_for()  # Streamlit misses a change of the scheme while it starts
        for scheme, ground in {"light": "rgb(255, 255, 255)", "dark": "rgb(14, 20, 32)"}.items():
            page.emulate_media(color_scheme=scheme)
            page.wait_for_function(
                "ground => getComputedStyle(document.querySelector('.stApp')).backgroundColor === ground", arg=ground
            )
            for part in parts:
                page.wait_for_function(
                    f"""part => {{
                        const found = [...document.querySelectorAll(part)];
                        return found.length && found.every((words) => ({CONTRAST})(words) >= 4.5);
                    }}""",
                    arg=part,
                )


@pytest.mark.parametrize("path", ["/new_run", "/benchmarks"])
def test_what_is_seen_of_a_page_keeps_its_place_while_the_rest_loads(profile, workbench, path):
    page = profile.new_page()
    page.set_viewport_size({"width": 390, "height": 844})
    page.add_init_script(ADD_SHIFTS)
    page.goto(f"{workbench.origin}{path}")
    page.get_by_role("heading", level=1).wait_for()
    page.wait_for_function(
        f"""() => document.querySelector("{IDLE}") && !document.querySelector("[data-testid=stSkeleton]")"""
    )
    assert page.evaluate("layoutShift") <= 0.1
    page.close()


def test_charts_are_drawn_when_scrolled_to_and_they_and_the_open_view_survive_refreshes_and_a_reload(open_page):
    watched = open_page("/run?run=run-running")
    page = watched.page
    between = Between(page)
    places = page.locator("[class*=st-key-card-]:has(.chart)")
    charts = page.locator(".js-plotly-plot")
    last = places.nth(13)
    folded = page.get_by_test_id("stExpander")
    charts.first.wait_for()
    last.wait_for(state="attached")
    assert sum(place.is_visible() for place in places.all()) == figures.NUM_OPEN
    assert last.locator(charts).count() == 0
    folded.last.locator("summary").click()
    last.scroll_into_view_if_needed()
    last.locator(charts).wait_for()
    num_drawn = charts.count()
    between.wait_for_refreshes(4)
    page.locator(IDLE).wait_for()
    assert num_drawn <= charts.count() <= places.count() == 14
    page.get_by_role("tab", name="Log").click()
    page.get_by_text("step 300 of exgrpo live").wait_for()
    between.wait_for_refreshes(4)
    assert page.get_by_text("step 300 of exgrpo live").is_visible()
    page.wait_for_url(re.compile("view=Log"))
    page.reload()
    page.get_by_text("step 300 of exgrpo live").wait_for()
    assert watched.errors == []


PRINTED = """() => matchMedia("print").addEventListener("change", ({matches}) => {
    const places = [...document.querySelectorAll("[class*=st-key-card-]:has(.chart)")]
        .filter((place) => place.checkVisibility());
    const drawn = places.filter((place) => place.querySelector(".scatterlayer path"));
    const ends = drawn.map((place) => [place, ...place.querySelectorAll(".main-svg")].map(
        (part) => part.getBoundingClientRect().right));
    const numCut = ends.filter(([end, ...inside]) => Math.max(...inside) > end).length;
    const numScaled = document.querySelectorAll(".main-svg[viewBox]").length;
    (window.printed ??= []).push({matches, numPlaces: places.length, numDrawn: drawn.length, numCut, numScaled});
})"""


def test_print_has_every_unfolded_chart_at_once_and_whole_and_leaves_the_screen_as_it_was(open_page):
    watched = open_page("/run?run=run-finished")
    page = watched.page
    page.locator(".js-plotly-plot .scatterlayer path").first.wait_for(state="attached")
    page.locator("[class*=st-key-card-]:has(.chart)").nth(13).wait_for(state="attached")
    page.evaluate(PRINTED)
    page.pdf(format="A4")
    paper, screen = page.evaluate("window.printed")
    assert (paper["matches"], paper["numPlaces"], paper["numDrawn"], paper["numCut"]) == (
        True, *[figures.NUM_OPEN] * 2, 0,
    )  # fmt: skip
    assert paper["numScaled"] >= figures.NUM_OPEN
    assert (screen["matches"], screen["numScaled"]) == (False, 0)
    assert watched.errors == []


def test_a_refresh_of_the_page_before_that_comes_late_leaves_the_new_one(open_page):
    watched = open_page("/")
    page = watched.page
    between = Between(page)
    page.get_by_text(re.compile(r"of \d+ runs, \d+ active")).wait_for()
    between.wait_for_refreshes(4)
    of_the_list = between.refreshes[-4:]
    page.get_by_role("link", name="New run").click()
    page.get_by_role("button", name="Launch run").wait_for()
    for message in of_the_list:
        between.send(message)
    between.wait_for_refreshes(4)
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


@pytest.mark.parametrize("width", [1024, 1000, 390])
def test_a_menu_near_the_bottom_of_the_window_is_whole_with_all_that_comes_into_it(open_page, width):
    menus = {
        "/run?run=run-finished&view=Trajectories&trajectory=3": ("Keep as a case", "Keep in this set"),
        "/run?run=run-finished": ("Export", "LaTeX"),
    }
    for address, (name, last) in menus.items():
        page = open_page(address).page
        page.set_viewport_size({"width": width, "height": 800})
        button = (
            page.locator("[class*=st-key-card-], [class*=st-key-trajectory-panel]")
            .get_by_role("button", name=name)
            .first
        )
        button.wait_for()
        page.locator(IDLE).wait_for()
        button.evaluate("""button => {
            document.querySelector("[data-testid=stMain]").scrollTop += button.getBoundingClientRect().top - 600;
        }""")
        button.click()
        part = page.get_by_role("button", name=last)
        part.wait_for()
        page.wait_for_function("""() => {
            const menu = document.querySelector("[data-testid=stPopoverBody]");
            const {top, bottom} = menu.getBoundingClientRect();
            return top >= 0 && bottom <= innerHeight && menu.scrollHeight <= menu.clientHeight + 1;
        }""")
        part.click(trial=True)  # no part of the page is over it
        page.close()


def test_what_is_typed_into_the_fields_of_a_sweep_stays_while_the_page_is_drawn_again(open_page):
    page = open_page("/methods?view=Studies").page
    page.get_by_role("button", name="New sweep").click()
    page.get_by_label("Name").fill("rates")
    fields = page.get_by_role("combobox", name=re.compile("^Fields"))
    fields.click()  # ends the name, and the page is drawn again
    fields.press_sequentially("mu")
    page.wait_for_timeout(1500)
    page.locator(IDLE).wait_for()
    assert fields.input_value() == "mu"


def test_what_is_typed_into_a_menu_is_there_again_after_escape_and_after_another_tab(open_page):
    page = open_page("/methods?view=Studies").page
    menu, name = page.get_by_role("button", name="New sweep"), page.get_by_label("Name")
    menu.click()
    name.fill("rates")
    name.press("Escape")
    name.wait_for(state="hidden")
    for tab, state in (("Paper", "hidden"), ("Studies", "visible")):
        page.locator(IDLE).wait_for()
        page.get_by_role("tab", name=tab, exact=True).click()
        menu.wait_for(state=state)
    menu.click()
    wait_for_value(name, "rates")
