"""How often pages are read again: seldom where nothing is queued or running."""

from dataclasses import replace

import pytest
from streamlit.runtime.scriptrunner_utils.script_run_context import ScriptRunContext

from exgrpo.app.components.widgets import page_frame
from exgrpo.app.queries import answers
from exgrpo.db.queries import runs
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


def test_the_page_of_an_ended_run_is_drawn_again_when_more_of_its_steps_are_read(runs_root, open_page, monkeypatch):
    recorded.record(runs_root, recorded.FINISHED)
    ask, asked, drawn = answers.ask, [], []

    def ask_too_early(query, *arguments, **options):
        answer = ask(query, *arguments, **options)
        if query is runs.get_run:
            asked.append(answer)
        return replace(answer, step=answer.step - 1) if query is runs.get_run and len(asked) == 1 else answer

    monkeypatch.setattr(answers, "ask", ask_too_early)
    monkeypatch.setattr(page_frame, "show_title", lambda _page, name=None: drawn.append(name))
    assert not open_page("run", run=recorded.FINISHED.run_id).exception
    assert drawn.count(recorded.FINISHED.name) == 2
