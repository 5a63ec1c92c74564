import os
from contextlib import closing

import pytest

from exgrpo.jobs.execution.supervisor.loop import start_command
from exgrpo.jobs.machine.engine_environments import PROJECT_ROOT
from exgrpo.jobs.runs.launchers.local import ON_END_VARIABLE
from exgrpo_core.methods.loading import CODE_FOLDER_VARIABLE
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.execution.supervisor.test_choosing import waiting_spec
from tests.jobs.execution.supervisor.toy_bench import Bench, toy_spec, wait_until

pytestmark = pytest.mark.slow


def test_each_end_starts_the_command_once_without_the_workbenchs_secrets(tmp_path, monkeypatch):
    told = tmp_path / "told"
    script = tmp_path / "on end.sh"
    script.write_text(f'#!/bin/sh\necho "$1" "$2" "$EXGRPO_TOKEN$EXGRPO_ON_END." >> {told}\n')
    script.chmod(0o700)
    monkeypatch.setenv(ON_END_VARIABLE, f"'{script}'")
    monkeypatch.setenv("EXGRPO_TOKEN", "secret")
    bench = Bench(tmp_path / "runs")
    expected = []
    for _ in range(2):  # the second supervisor finds the runs of the first, which have ended
        with closing(bench.start()):
            finished, failed, aborted = (bench.submit(toy_spec(1, *tags)) for tags in ((), ("fails",), ("aborts",)))
            never_started = bench.submit(waiting_spec(failed))
            bench.look_while(lambda: not bench.supervisor.is_idle, "all to end")
        ends = {finished: "finished", failed: "failed", aborted: "failed", never_started: "failed"}
        expected += [f"{bench.run_of(run_id).path} {status} ." for run_id, status in ends.items()]
    wait_until(lambda: told.exists() and sorted(told.read_text().splitlines()) == sorted(expected), "four messages", 8)


def test_the_command_starts_where_the_workbench_did_and_does_not_import_the_project(tmp_path, monkeypatch):
    script = tmp_path / "on-end.sh"
    script.write_text('#!/bin/sh\necho "$PYTHONPATH" > told.new\nmv told.new told\n')
    script.chmod(0o700)
    monkeypatch.setenv(ON_END_VARIABLE, "./on-end.sh")
    monkeypatch.setenv("PYTHONPATH", f"/own{os.pathsep}{PROJECT_ROOT}")
    bench = Bench(tmp_path / "runs")
    for start in (monkeypatch.chdir, lambda folder: monkeypatch.setenv(CODE_FOLDER_VARIABLE, str(folder))):
        monkeypatch.chdir("/")
        start(tmp_path)
        start_command(bench.run_of(bench.submit(toy_spec(1))), RunStatus.FINISHED)
        wait_until((tmp_path / "told").exists, "the command", 8)
        assert (tmp_path / "told").read_text() == "/own\n"
        (tmp_path / "told").unlink()


@pytest.mark.parametrize("command", ["", "'half", "/no/such/command"])
def test_a_command_that_cannot_start_harms_no_run(tmp_path, monkeypatch, caplog, command):
    monkeypatch.setenv(ON_END_VARIABLE, command)
    bench = Bench(tmp_path)
    with closing(bench.start()):
        run_id = bench.submit(toy_spec(1))
        bench.look_until(run_id, RunStatus.FINISHED)
        bench.look_while(lambda: not bench.supervisor.is_idle, "the run to be over")
    assert (ON_END_VARIABLE in caplog.text) is bool(command)
