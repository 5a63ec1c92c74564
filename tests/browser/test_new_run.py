"""New run in a browser: what one types is kept, and a clicked button answers at once."""

import re

import pytest

from tests.browser.clicks import IDLE, Between, wait_for_value

pytestmark = [pytest.mark.browser, pytest.mark.slow]


def test_changes_survive_a_reload_and_the_launch_stays_in_view(open_page):
    watched = open_page("/new_run?section=Algorithm")
    page = watched.page
    field = page.get_by_label("Mini batch size", exact=True)
    field.fill("5")
    field.press("Enter")
    mistake = page.locator('[class*="st-key-mistake-"]').get_by_text("algorithm.mini_batch_size: expected a divisor")
    mistake.wait_for()
    page.wait_for_url("**set=algorithm.mini_batch_size*")
    page.reload()
    mistake.wait_for()
    page.wait_for_function("field => field.value === '5'", arg=field.element_handle())
    page.get_by_label("KL coefficient", exact=True).scroll_into_view_if_needed()
    assert mistake.is_visible()
    launch = page.get_by_role("button", name="Launch run")
    assert launch.is_disabled()
    box = launch.bounding_box()
    assert 0 < box["y"] < page.viewport_size["height"] - box["height"]
    assert watched.errors == []


def test_a_text_field_whose_code_comes_after_the_first_change_keeps_its_value(open_page, workbench):
    watched = open_page("/")
    page = watched.page
    held = []
    page.route("**/TextInput.*.js", lambda route: held.append(route))
    page.goto(f"{workbench.origin}/new_run?section=Run")
    # What is below a part that loads cannot be seen until then; a change may come from above it.
    page.add_style_tag(content="main * { visibility: visible !important; }")
    steps = page.get_by_label("Number of steps", exact=True)
    steps.fill("7")
    steps.press("Enter")
    page.wait_for_url("**num_steps%3D7")
    assert held
    for route in held:
        route.continue_()
    name = page.get_by_label("Name", exact=True)
    name.wait_for()
    steps.fill("8")
    steps.press("Enter")
    page.wait_for_url("**num_steps%3D8")
    wait_for_value(name, "chains ExGRPO")
    assert "set=name" not in page.url
    assert watched.errors == []


def test_a_clicked_button_is_busy_before_the_server_hears_of_it_and_takes_no_second_click(open_page):
    page = open_page("/new_run").page
    between = Between(page)
    save = page.locator(".st-key-save-draft button")
    save.wait_for()
    page.locator(IDLE).wait_for()
    save.evaluate(
        "button => button.addEventListener('click', () => { window.numClicks = (window.numClicks ?? 0) + 1; })"
    )
    between.is_holding = True
    save.click()
    page.locator(".st-key-save-draft button[aria-busy=true]").wait_for()
    box = save.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    assert page.evaluate("numClicks") == 1
    between.release()
    page.locator(".st-key-save-draft button:not([aria-busy])").wait_for()
    page.get_by_role("button", name=re.compile("Drafts")).wait_for()
