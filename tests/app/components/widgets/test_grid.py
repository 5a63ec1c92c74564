from streamlit.testing.v1 import AppTest

from tests.app.page_texts import tables


def page_of_rows():
    import pandas as pd
    import streamlit as st

    from app.components.widgets import data_table

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
