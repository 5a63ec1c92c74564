import dataclasses
import sys
from contextlib import closing, suppress

import psutil
import pytest

from exgrpo.jobs.actions import page_commands
from exgrpo.jobs.actions.page_commands import CommandFailedError, execute_steps
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo.jobs.training.probe import probe
from tests.jobs.actions.replay import solved_runs
from tests.jobs.actions.replay.test_steps import token_changed
from tests.jobs.training.chat_model import make_chat_model
from tests.jobs.training.test_probe import spec_of

pytestmark = pytest.mark.slow


def num_probing() -> int:
    number = 0
    for child in psutil.Process().children():
        with suppress(psutil.Error):  # some other test's process that ends just now
            number += "probe" in child.cmdline()
    return number


def test_a_form_gets_the_report_of_the_command_or_its_sentence_and_ends_it_when_it_stops_waiting(tmp_path):
    spec = spec_of(make_chat_model(tmp_path / "model"))
    with closing(page_commands.probe(tmp_path, spec)) as stream:
        assert next(stream) is None
        assert num_probing() == 1
    assert not num_probing()
    *ticks, report = page_commands.probe(tmp_path, spec)
    assert set(ticks) == {None}
    assert report == dataclasses.replace(probe(spec), seconds=report.seconds)
    with pytest.raises(CommandFailedError, match=r"^model.source: "):
        list(page_commands.probe(tmp_path, apply_settings(spec, ["model.source=/gone/model"])))
    with pytest.raises(CommandFailedError, match="'nothing'"):
        list(execute_steps(tmp_path, None, "nothing", ["--step=1"]))


def test_a_sentence_is_shown_whatever_is_printed_after_it(tmp_path, monkeypatch):
    program = tmp_path / "program"
    program.write_text(f'#!/bin/sh\n{sys.executable} "$@"\ncode=$?\necho warning >&2\nexit $code\n')
    program.chmod(0o700)
    monkeypatch.setattr(page_commands.sys, "executable", str(program))
    spec = TrainSpec().model_copy(update={"num_steps": -1, "seed": -1})
    with pytest.raises(CommandFailedError, match=r"num_steps: .*seed: "):
        list(page_commands.probe(tmp_path, spec))


def test_an_update_has_its_rows_even_if_the_record_differs(tmp_path):
    solved_runs.record(tmp_path, lambda report: report.step == 3 and token_changed(report), num_steps=3)
    *ticks, rows = execute_steps(tmp_path, None, "solved", ["--step=3", "--update"])
    assert set(ticks) == {None}
    assert [row.compared for row in rows if row.outcome == "differs"] == ["same tokens as at rollout"]
    assert {row.stage for row in rows} == {"selection", "reward", "advantages", "loss", "update"}
