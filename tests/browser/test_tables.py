"""What only a browser shows of tables."""

from pathlib import Path

import pytest

from exgrpo import app
from tests.browser.clicks import rows

pytestmark = [pytest.mark.browser, pytest.mark.slow]

DRAW = """([value, formats]) => {
    const columns = formats.map((format) => ({name: String(format), label: "", kind: "number", format}));
    const data = {columns, rows: [formats.map(() => value)], ids: ["one"], opened: null, order: null, ticked: null};
    exgrpoTable({parentElement: document.body, data});
    return [...document.querySelectorAll("td")].map((cell) => cell.textContent);
}"""


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (-0.0, ["0", "0", "0.0", "+0.0", "0%"]),
        (-0.0004, ["-0.0004", "0", "0.0", "+0.0", "0%"]),
        (1016.0, ["1,016", "1,016", "1,016.0", "+1,016.0", "101600%"]),
        (0.34375, ["0.344", "0.344", "0.3", "+0.3", "34%"]),
    ],
)
def test_no_number_is_a_minus_zero(browser, value, expected):
    page = browser.new_page()
    page.add_script_tag(path=Path(app.__file__).parent / "serving" / "table.js")
    assert page.evaluate(DRAW, [value, [None, "localized", "%.1f", "%+.1f", "percent"]]) == expected
    page.close()


def test_what_was_done_with_runs_and_its_undo_leave_the_table_where_it_is(open_page):
    page = open_page("/").page
    rows(page).first.get_by_role("checkbox").click()
    archive, undo = (page.get_by_role("button", name=name) for name in ("Archive 1 run", "Undo"))
    archive.wait_for()
    page.evaluate("""() => window.under = () => document.querySelector(".data-table").getBoundingClientRect().top
        - document.querySelector(".st-key-runs-line").getBoundingClientRect().top""")
    distance = page.evaluate("under()")
    archive.click()
    undo.wait_for()
    assert page.evaluate("under()") == distance
    undo.click()
    undo.wait_for(state="hidden")
    assert page.evaluate("under()") == distance
