import sys
import time
from types import SimpleNamespace

import pytest
from streamlit.testing.v1 import AppTest

from exgrpo.app import address

pytestmark = pytest.mark.slow

WRITTEN = "address-written"
HERE = ""
"""The path of the page as AppTest gives it."""


@pytest.fixture(autouse=True)
def main_module(monkeypatch):
    """AppTest makes its function the main module, which a process that is spawned later would run."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])


def whole_page():
    import streamlit as st

    from exgrpo.app import address

    address.keep()
    st.selectbox(
        "Step", ["1", "2"], key="step", on_change=lambda: address.put({"step": st.session_state["step"], "mark": None})
    )


def address_after(written, **query):
    page = AppTest.from_function(whole_page)
    page.query_params.update(query)
    page.session_state[WRITTEN] = written
    page.run()
    assert not page.exception
    return dict(page.query_params), page


def test_what_was_written_a_moment_ago_comes_back_and_the_page_forgets_it():
    written = (time.monotonic(), HERE, {"view": "Log", "mark": None})
    parameters, page = address_after(written, mark="bucket:2", run="a")
    assert parameters == {"view": "Log", "run": "a"}
    assert WRITTEN not in page.session_state


@pytest.mark.parametrize(("age", "page"), [(60.0, HERE), (0.0, "/compare")])
def test_what_was_written_long_ago_or_on_another_page_is_forgotten(age, page):
    parameters, _ = address_after((time.monotonic() - age, page, {"view": "Log"}))
    assert parameters == {}


def test_a_step_in_the_browsers_history_means_its_own_address(monkeypatch):
    monkeypatch.setattr(address, "get_script_run_ctx", lambda: SimpleNamespace(is_history_navigation=True))
    parameters, page = address_after((time.monotonic(), HERE, {"view": "Log"}))
    assert parameters == {}
    assert WRITTEN not in page.session_state


def test_a_choice_is_written_and_what_it_ends_is_taken_out():
    _, page = address_after((0.0, HERE, {}), mark="bucket:2")
    page.selectbox(key="step").set_value("2").run()
    assert dict(page.query_params) == {"step": "2"}
