"""How often pages are read again: seldom where nothing is queued or running."""

import pytest
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from tests.app import recorded

pytestmark = pytest.mark.slow


@pytest.fixture
def intervals(monkeypatch):
    asked = []
    enqueue = ScriptRunContext.enqueue

    def remember(context, message):
        if message.HasField("auto_rerun"):
            asked.append(message.auto_rerun.interval)
        enqueue(context, message)

    monkeypatch.setattr(ScriptRunContext, "enqueue", remember)
    return asked


@pytest.mark.parametrize(
    ("name", "run", "seconds"),
    [("runs", recorded.FAILED, 5.0), ("benchmarks", recorded.FAILED, 5.0), ("runs", recorded.RUNNING, 2.0)],
)
def test_lists_are_read_often_beside_a_live_run_and_else_only_checked(
    name, run, seconds, runs_root, open_page, intervals
):
    recorded.record(runs_root, recorded.FINISHED, run)
    open_page(name)
    assert min(intervals) == seconds
