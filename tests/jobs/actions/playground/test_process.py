from contextlib import closing, suppress

import psutil
import pytest

from exgrpo.jobs.actions.playground.process import ChatError, ask_models, execute_steps
from tests.jobs.actions.replay import solved_runs
from tests.jobs.actions.replay.test_steps import token_changed
from tests.jobs.training.chat_model import make_chat_model

pytestmark = pytest.mark.slow


def children() -> list[psutil.Process]:
    answering = []
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # some other test's process that ends just now
            if "chat" in child.cmdline():
                answering.append(child)
    return answering


def test_answers_come_from_a_process_that_ends_with_them(tmp_path):
    model = str(make_chat_model(tmp_path / "model"))
    options = ["-n", "2", "--max-tokens", "6"]
    records = [record for record in ask_models(tmp_path, [model, model], "How many?", options) if record]
    assert [(record["model"], record.get("sample")) for record in records] == 2 * [
        (model, None),
        (model, 1),
        (model, 2),
    ]
    assert not children()


def test_closing_ends_the_process_and_lets_the_next_one_begin_whose_own_sentence_says_what_is_wrong(tmp_path):
    with closing(ask_models(tmp_path, ["nothing@5"], "How many?")) as asked:
        assert next(asked) == {}
        assert len(children()) == 1
        waiting = ask_models(tmp_path, ["nothing@5"], "How many?")
        assert next(waiting) is None
        assert len(children()) == 1
    assert not children()
    with closing(waiting):
        assert next(waiting) == {}
        assert len(children()) == 1
        with pytest.raises(ChatError, match="'nothing'"):
            list(waiting)


def test_an_update_has_its_rows_even_if_the_record_differs(tmp_path):
    solved_runs.record(tmp_path, lambda report: report.step == 3 and token_changed(report), num_steps=3)
    *ticks, rows = execute_steps(tmp_path, None, "solved", ["--step=3", "--update"])
    assert ticks == len(ticks) * [[]]
    assert [row.compared for row in rows if row.outcome == "differs"] == ["same tokens as at rollout"]
    assert {row.stage for row in rows} == {"selection", "reward", "advantages", "loss", "update"}
