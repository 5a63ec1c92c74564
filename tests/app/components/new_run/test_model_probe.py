"""The probe's part of the form: its button, its wait and its report."""

from types import SimpleNamespace

import pytest

from exgrpo.app.components.new_run import data_preview
from exgrpo.jobs.specs.train import load_preset
from tests.app.page_texts import has_text
from tests.jobs.training.test_probe import GOOD

pytestmark = pytest.mark.slow


@pytest.fixture
def open_with(open_page):
    """Open the form with a probe of this result, which stops as it is told."""

    def opened(result):
        page, process = open_page("new_run"), SimpleNamespace(result=lambda: result, is_stopped=False)
        process.stop = lambda: setattr(process, "is_stopped", True)
        page.session_state[data_preview.PROBE_STATE] = load_preset("chains-exgrpo").model_dump_json(), process
        return page.run(), process

    return opened


def test_report_shows_figures_answers_and_what_to_do(open_page, open_with):
    assert not open_page("new_run").metric
    page, _ = open_with(GOOD.from_json(GOOD.to_json() | {"pass_rate": 0.0, "mean_entropy": 3.5}))
    assert not page.exception
    assert [metric.value for metric in page.metric] == ["0%", "90%", "10%", "3.50"]
    assert has_text(page, "No response is correct")
    assert any(code.value == "\\boxed{3}" for code in page.code)


def test_failed_probe_says_why(open_with):
    page, _ = open_with("probe: model.source: gone")
    assert has_text(page, "probe: model.source: gone")
    assert not page.metric


def test_running_probe_can_be_stopped(open_with):
    page, process = open_with(None)
    page.button(key="stop-probe").click().run()
    assert process.is_stopped
    assert not page.exception
