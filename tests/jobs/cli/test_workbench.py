import errno
import os
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from exgrpo.jobs.cli import workbench
from exgrpo.jobs.cli.workbench import Workbench, WorkbenchInstance, WorkbenchRunningError, read_workbench
from exgrpo.jobs.execution.supervisor import run_index
from exgrpo.jobs.execution.supervisor.indexing import Indexer
from exgrpo.jobs.runs.attempts import write_outcome
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.recording.run_status import RunStatus

STUBBORN = "import pathlib, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
STUBBORN += "pathlib.Path('ready').touch(); time.sleep(600)"


def test_second_workbench_is_told_of_the_first_without_its_token_until_that_ended(tmp_path):
    first = WorkbenchInstance(tmp_path)
    assert read_workbench(tmp_path).address == ""
    with pytest.raises(WorkbenchRunningError):
        WorkbenchInstance(tmp_path)
    first.record_link("http://127.0.0.1:8501/?token=secret")
    with pytest.raises(WorkbenchRunningError) as refused:
        WorkbenchInstance(tmp_path)
    assert f"at http://127.0.0.1:8501/ (pid {os.getpid()}, since" in str(refused.value)
    assert "secret" not in str(refused.value)
    (tmp_path / "workbench" / "workbench.json").write_text("{")
    with pytest.raises(WorkbenchRunningError):
        WorkbenchInstance(tmp_path)
    first.release()
    assert read_workbench(tmp_path) is None
    WorkbenchInstance(tmp_path).release()


@pytest.fixture
def stubborn(tmp_path, monkeypatch):
    """A workbench whose supervisor ends for no SIGTERM and whose pages end once it runs, and its supervisors."""
    served = Workbench(tmp_path, None, [sys.executable, "-c", STUBBORN], stops_runs=True)
    start, started, pages = served._start_supervisor, [], []

    def start_supervisor():
        started.append(start())
        return started[-1]

    def start_pages():
        wait = "while [ ! -e workbench/ready ]; do sleep 0.05; done"
        pages.append(subprocess.Popen(["sh", "-c", wait], cwd=tmp_path, stdout=subprocess.PIPE))
        return pages[-1]

    monkeypatch.setattr(served, "_start_supervisor", start_supervisor)
    monkeypatch.setattr(served, "_start_pages", start_pages)
    yield served, started
    for supervisor in started:
        supervisor.kill()
    for process in pages:
        process.stdout.close()


def test_an_end_that_waits_for_runs_says_so_and_a_further_signal_ends_the_wait(stubborn, monkeypatch):
    served, supervisors = stubborn
    said = []

    def hear(line):
        said.append(line)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(workbench, "print_status", hear)
    assert served.serve(opens_browser=False) == 0
    assert (len(said), supervisors[0].returncode) == (1, -signal.SIGKILL)


def test_pages_that_cannot_start_leave_no_supervisor_and_are_not_taken_for_a_root_that_cannot_be_written(
    stubborn, monkeypatch
):
    def fail():
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    served, supervisors = stubborn
    served._stops_runs = False
    monkeypatch.setattr(workbench, "END_SECONDS", 0.1)
    monkeypatch.setattr(served, "_start_pages", fail)
    with pytest.raises(PermissionError):
        served.serve(opens_browser=False)
    assert supervisors[0].returncode is not None


def test_the_signal_that_ended_the_server_of_the_pages_is_named(stubborn, monkeypatch, caplog):
    served, _ = stubborn
    served._stops_runs = False
    monkeypatch.setattr(workbench, "END_SECONDS", 0.1)
    with subprocess.Popen(["sh", "-c", "kill -9 $$"], stdout=subprocess.PIPE) as pages:
        monkeypatch.setattr(served, "_start_pages", lambda: pages)
        assert served.serve(opens_browser=False) == -signal.SIGKILL
    (said,) = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "SIGKILL" in said


@pytest.mark.parametrize("token", ["", "a-token-of-a-service"])
def test_a_browser_that_cannot_be_opened_takes_nothing_of_what_is_printed(tmp_path, monkeypatch, capsys, token):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    instance = WorkbenchInstance(tmp_path)
    monkeypatch.setattr(workbench, "write_whole", fail)
    monkeypatch.setenv(workbench.TOKEN_VARIABLE, token)
    pages = SimpleNamespace(stdout=[b"http://127.0.0.1:1/?token=x\n", b"Why? Because.\n"])
    workbench._forward_output(pages, True, instance)
    instance.release()
    link = "http://127.0.0.1:1/" if token else "http://127.0.0.1:1/?token=x"
    printed = capsys.readouterr()
    assert printed.out.splitlines() == [link, "Why? Because."]
    assert printed.err.splitlines() == [f"If the browser shows nothing, open {link}"]


def test_of_a_root_that_cannot_be_written_only_living_runs_are_read_twice_a_second(tmp_path, monkeypatch):
    ended, living = RunDirectory.create(tmp_path, TrainSpec()), RunDirectory.create(tmp_path, TrainSpec())
    ended.claim_attempt(1)
    write_outcome(ended.attempt_path(1), RunStatus.FINISHED, "")
    living.request_attempt(1)
    read, state_of = [], run_index.read_state
    monkeypatch.setattr(run_index, "read_state", lambda run: read.append(run.run_id) or state_of(run))
    index = Indexer(f"sqlite:///{tmp_path / 'index.db'}", tmp_path)
    for expected in ([ended.run_id, living.run_id], [living.run_id]):
        index.poll()
        assert sorted(read) == sorted(expected)
        read.clear()
    monkeypatch.setattr(index, "_look_at_all_at", 0.0)
    index.poll()
    index.close()
    assert len(read) == 2
