import re
from pathlib import Path

import pytest
from streamlit.testing.v1 import AppTest

from exgrpo import app
from tests.app.page_texts import tables

pytestmark = pytest.mark.slow


def page_of_rows():
    import pandas as pd
    import streamlit as st

    from exgrpo.app.components.widgets import data_table

    names = st.session_state.get("names", ["a", "b"])
    picked = data_table.pick(pd.DataFrame({"Step": [1] * len(names)}), "rows", "Rows", names)
    st.text("none" if picked is None else names[picked])


def test_a_click_opens_the_row_that_was_seen_where_rows_came_or_went_since():
    page = AppTest.from_function(page_of_rows).run()
    [seen] = tables(page)
    page.session_state["names"] = ["new", "a", "b"]
    seen.open(page, 1)
    assert [text.value for text in page.text] == ["b"]
    page.session_state["names"] = ["new"]
    seen.open(page, 1)
    assert [text.value for text in page.text] == ["none"]


def test_the_browser_knows_every_format_of_numbers():
    folder = Path(app.__file__).parent
    script = (folder / "serving/table.js").read_text()
    printf = re.compile(re.search(r"/(\^%.*\$)/\.exec", script)[1])
    named = set(re.findall(r'format === "(\w+)"', script))
    used = re.findall(
        r'(?:NumberColumn|number)\(\s*format="([^"]+)"', "".join(map(Path.read_text, folder.rglob("*.py")))
    )
    assert len(used) > 20
    assert [given for given in used if given not in named and not printf.match(given)] == []


def page_of_figures():
    import pandas as pd
    import streamlit as st

    from exgrpo.app.components.widgets import data_table
    from exgrpo.app.formats import NONE_SHOWN

    values = {
        "Votes": ["120 of 130", "7"], "Kappa": ["0.472", NONE_SHOWN], "Rate": ["1e-05", "0.1"],
        "Agree": ["83.6%", "9.0%"], "Step": [1, 2],
        "Entropy": ["0.04 ± 0.01", "-0.1"], "95% interval": ["75.8 to 89.3%", "1 to 2%"], "Gain": ["+1,234.5", "-1"],
        "Text": ["12", "14"], "Prompt": ["2 + 3", "4"],
        "Version": ["3.11.7", "2.1"], "Date": ["2026-12-01", None], "Name": ["a", "1"],
    }  # fmt: skip
    data_table.show(pd.DataFrame(values), "figures", "Figures", {"Text": st.column_config.TextColumn(width="large")})


def test_figures_stand_at_the_right_and_sort_from_the_highest_also_where_they_are_texts():
    [table] = tables(AppTest.from_function(page_of_figures).run())
    texts = {"Text", "Prompt", "Version", "Date", "Name"}
    for way in ("isRight", "startsHigh"):
        assert {column["name"] for column in table.data["columns"] if not column[way]} == texts
