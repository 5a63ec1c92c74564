"""How often pages are read again: seldom where nothing is queued or running."""

import pytest
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from tests.app import recorded

SECONDS_BETWEEN_CHECKS = 5.0


@pytest.fixture
def intervals(monkeypatch):
    """The seconds between the refreshes that pages ask the browser for."""
    asked = []
    enqueue = ScriptRunContext.enqueue

    def remember(context, message):
        if message.HasField("auto_rerun"):
            asked.append(message.auto_rerun.interval)
        enqueue(context, message)

    monkeypatch.setattr(ScriptRunContext, "enqueue", remember)
    return asked


@pytest.mark.parametrize("name", ["runs", "benchmarks"])
def test_without_live_runs_lists_are_checked_only(name, runs_root, open_page, intervals):
    recorded.record(runs_root, recorded.FINISHED, recorded.FAILED)
    open_page(name)
    assert min(intervals) == SECONDS_BETWEEN_CHECKS


def test_list_with_a_live_run_is_read_every_two_seconds(runs_root, open_page, intervals):
    recorded.record(runs_root, recorded.FINISHED, recorded.RUNNING)
    open_page("runs")
    assert min(intervals) == 2.0
