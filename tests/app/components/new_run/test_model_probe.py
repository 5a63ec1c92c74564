"""The probe's part of the form: its button, its wait and its report."""

import pytest

from app.components.new_run import data_preview
from jobs.specs.train import load_preset
from tests.jobs.training.test_probe import GOOD


class Process:
    """A probe whose result is known."""

    def __init__(self, result):
        self._result = result
        self.is_stopped = False

    def result(self):
        return self._result

    def stop(self):
        self.is_stopped = True


@pytest.fixture
def spec():
    return load_preset("chains-exgrpo")


def open_with(open_page, spec, result):
    process = Process(result)
    page = open_page("new_run")
    page.session_state[data_preview.PROBE_STATE] = (spec.model_dump_json(), process)
    return page.run(), process


def test_form_probes_only_on_its_button(open_page):
    page = open_page("new_run")
    assert page.button(key="probe").label == "Probe the model"
    assert not page.metric


def test_report_shows_figures_answers_and_what_to_do(open_page, spec):
    bad = GOOD.from_json(GOOD.to_json() | {"pass_rate": 0.0, "mean_entropy": 3.5})
    page, _ = open_with(open_page, spec, bad)
    assert not page.exception
    assert [metric.value for metric in page.metric] == ["0%", "90%", "10%", "3.50"]
    advice = next(element.value for element in page.text if "No answer is right" in element.value)
    assert "noise" in advice
    assert any(code.value == "\\boxed{3}" for code in page.code)


def test_failed_probe_says_why(open_page, spec):
    page, _ = open_with(open_page, spec, "probe: model.source: gone")
    assert any(element.value == "probe: model.source: gone" for element in page.text)
    assert not page.metric


def test_running_probe_can_be_stopped(open_page, spec):
    page, process = open_with(open_page, spec, None)
    page.button(key="stop-probe").click().run()
    assert process.is_stopped
    assert not page.exception
