"""The probe's part of the form: its button, its wait and its report."""

import pytest
import streamlit as st

from exgrpo.jobs.actions import page_commands
from exgrpo_core.errors import UserError
from tests.app.page_texts import has_text
from tests.jobs.training.test_probe import GOOD

pytestmark = pytest.mark.slow


@pytest.fixture
def ask_for(open_page, monkeypatch):
    """Open the form and click the button of a probe that goes through these steps."""

    def asked(*steps):
        def stream(_root, _spec):
            for step in steps:
                if callable(step):
                    step()
                yield step

        monkeypatch.setattr(page_commands, "probe", stream)
        page = open_page("new_run")
        assert not page.metric
        return page.button(key="probe").click().run()

    return asked


def test_report_shows_figures_answers_and_what_to_do_until_settings_change(ask_for):
    page = ask_for(None, GOOD.from_json(GOOD.to_json() | {"pass_rate": 0.0, "mean_entropy": 3.5}))
    for _ in range(2):
        assert not page.exception
        assert [metric.value for metric in page.metric] == ["0%", "90%", "10%", "3.50"]
        assert has_text(page, "No response is correct")
        assert any(code.value == "\\boxed{3}" for code in page.code)
        assert "stop-probe" not in {button.key for button in page.button}
        page.run()


def test_failed_probe_says_why(ask_for):
    def fail():
        raise UserError("model.source: gone")

    page = ask_for(None, fail)
    assert has_text(page, "model.source: gone")
    assert not page.metric


def test_running_probe_can_be_stopped(ask_for):
    page = ask_for(None, st.stop)  # the page as it is at this moment
    assert has_text(page, "The model answers")
    page.button(key="stop-probe").click().run()
    assert not page.exception
    assert not page.metric
