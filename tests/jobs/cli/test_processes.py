import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from exgrpo.jobs.runs.checkpoints import list_steps
from exgrpo.jobs.runs.control import INTERRUPTED
from exgrpo.jobs.runs.launchers import local
from exgrpo.jobs.runs.state import read_state, read_supervisor
from exgrpo.jobs.specs.settings import apply_settings
from exgrpo.jobs.specs.train import TrainSpec, load_preset
from exgrpo_core.recording.run_status import RunStatus
from tests.jobs.cli.invoked import exgrpo, printed_json
from tests.jobs.execution.supervisor.toy_bench import TOY_WORKER, Bench, processes_of, wait_until

pytestmark = pytest.mark.slow


def start(runs_root: Path, *words: str, module: str = "tests.jobs.cli.toy_cli", **options) -> subprocess.Popen:
    command = [sys.executable, "-m", module, *words, "--runs-root", str(runs_root)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


@pytest.fixture
def toy_workers(monkeypatch):
    monkeypatch.setattr(local, "WORKER_MODULE", TOY_WORKER)


def training(runs_root: Path) -> tuple[subprocess.Popen, str]:
    process = start(runs_root, "train", "--set", "num_steps=2000")
    wait_until(lambda: any(runs_root.glob("*/attempts/0001/heartbeat.json")), "the worker")
    return process, only_run(runs_root)


def only_run(runs_root: Path) -> str:
    (path,) = runs_root.glob("*/run.json")
    return path.parent.name


@pytest.mark.usefixtures("toy_workers")
def test_finished_run_is_summed_up_exported_imported_and_read_again(bench: Bench, tmp_path):
    printed = exgrpo(bench.runs_root, "train", "--set", "num_steps=4")
    assert re.search(r"finished: 4 steps in \d+ s; buffer 0 questions, retired 0", printed.splitlines()[-1])
    run_id, archive, elsewhere = only_run(bench.runs_root), tmp_path / "run.tar.gz", tmp_path / "elsewhere"
    before = exgrpo(bench.runs_root, "show", run_id, "--json")
    exgrpo(bench.runs_root, "export", run_id, str(archive))
    assert exgrpo(elsewhere, "import", str(archive)).strip() == run_id
    printed = printed_json(elsewhere, "show", run_id)
    assert (printed["run"]["status"], printed["run"]["step"]) == ("finished", 4)
    assert printed["metrics"]["reward/pass_at_1"] == 0.25
    exgrpo(bench.runs_root, "db", "rebuild")
    assert exgrpo(bench.runs_root, "show", run_id, "--json") == before


@pytest.mark.usefixtures("toy_workers")
def test_second_training_command_takes_over_when_the_first_has_ended(bench: Bench):
    first = start(bench.runs_root, "train", "--set", "num_steps=60")
    wait_until(lambda: any(bench.runs_root.glob("*/attempts/0001/heartbeat.json")), "the worker")
    log = start(bench.runs_root, "logs", "-f", only_run(bench.runs_root))
    report = printed_json(bench.runs_root, "train", "--set", "num_steps=2")
    assert (report["status"], report["steps"]) == ("finished", 2)
    first.communicate(timeout=60)
    assert first.returncode == 0
    followed, _ = log.communicate(timeout=60)
    assert "Attempt 1" in followed
    assert "finished" in followed


@pytest.mark.usefixtures("toy_workers")
def test_failed_training_exits_with_one_and_says_why(bench: Bench):
    refused = exgrpo(bench.runs_root, "train", "--set", "tags=[fails]", code=1)
    assert "data.source: the toy data are missing." in refused


@pytest.mark.usefixtures("toy_workers")
def test_interrupted_training_stops_with_a_checkpoint_and_a_followed_resume_goes_on(bench: Bench):
    process, run_id = training(bench.runs_root)
    bench.wait_for_step(run_id, 2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 3, errors
    assert read_state(bench.run_of(run_id)).status is RunStatus.STOPPED
    assert any(bench.run_of(run_id).checkpoints_path.glob("step-*"))
    queued = bench.submit(TrainSpec(num_steps=3))
    exgrpo(bench.runs_root, "stop", queued)
    exgrpo(bench.runs_root, "resume", "--follow", queued)
    assert read_state(bench.run_of(queued)).status is RunStatus.FINISHED
    exgrpo(bench.runs_root, "resume", "--follow", queued)
    assert bench.run_of(queued).attempts() == [1]


def test_detached_training_is_looked_after_until_it_ends(bench: Bench, tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"model_type": "llama"}')  # without a tokenizer and weights
    run_id = printed_json(bench.runs_root, "train", "--detach", "--set", f"model.source={folder}")["run_id"]
    wait_until(lambda: read_state(bench.run_of(run_id)).is_ended, "the run's end")
    state = read_state(bench.run_of(run_id))
    assert state.status is RunStatus.FAILED
    wait_until(lambda: read_supervisor(bench.runs_root) is None, "the supervisor to end")


def test_up_serves_the_pages_refuses_a_second_one_restarts_its_supervisor_and_ends_all(bench: Bench):
    opened, browser = bench.runs_root.parent / "opened", bench.runs_root.parent / "browser"
    browser.write_text(f"#!/bin/sh\ncat /proc/$$/cmdline >{opened}; cat ${{1#file://}} >>{opened}\n")
    browser.chmod(0o700)
    environment = os.environ | {"BROWSER": str(browser)}
    process = start(bench.runs_root, "up", "--port", "0", module="exgrpo.jobs.cli", env=environment)
    link = process.stdout.readline().strip()
    address, _, token = link.partition("?token=")
    wait_until(lambda: opened.is_file() and token in opened.read_text(), "the browser")
    command, _, page = opened.read_text().partition("<meta")
    assert f"url={link}" in page
    assert token not in command
    (file,) = (bench.runs_root / "workbench").glob(".open*")
    assert file.stat().st_mode & 0o777 == 0o600
    with pytest.raises(urllib.error.HTTPError):
        urllib.request.urlopen(address, timeout=30)
    second = start(bench.runs_root, "up", "--no-browser", "--port", "0", module="exgrpo.jobs.cli")
    output, errors = second.communicate(timeout=30)
    assert (second.returncode, output) == (1, "")
    assert f"already at {address} (pid {process.pid}, since 2" in errors
    assert errors.count("\n") == 1
    assert token not in errors + (bench.runs_root / "workbench" / "workbench.json").read_text()
    assert urllib.request.urlopen(link, timeout=30).status == 200
    wait_until(lambda: (read_supervisor(bench.runs_root) or NOBODY).pid > 0, "the supervisor")
    first = read_supervisor(bench.runs_root).pid
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: (read_supervisor(bench.runs_root) or NOBODY).pid not in (0, first), "another supervisor")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=30)
    assert process.returncode == 0
    wait_until(lambda: processes_of(bench.runs_root) == [], "all to end")
    assert not file.exists()


def test_up_leaves_the_runs_to_another_supervisor_takes_over_after_it_and_killed_ends_its_own(bench: Bench):
    trainer, run_id = training(bench.runs_root)
    process = start(bench.runs_root, "up", "--no-browser", "--port", "0", module="exgrpo.jobs.cli")
    process.stdout.readline()
    assert read_supervisor(bench.runs_root).pid == trainer.pid
    trainer.kill()
    trainer.communicate(timeout=30)
    wait_until(lambda: (read_supervisor(bench.runs_root) or NOBODY).pid not in (0, trainer.pid), "its own supervisor")
    process.kill()
    _, errors = process.communicate(timeout=30)
    assert f"(pid {trainer.pid}" in errors
    worker = bench.worker_pid(run_id)
    wait_until(lambda: {*processes_of(bench.runs_root)} <= {worker}, "pages and supervisor to end")


def test_up_that_stops_runs_gives_them_time_for_a_checkpoint_and_prints_no_token_that_it_was_given(bench: Bench):
    changes = ("algorithm.batch_size=8", "data.num_questions=8", "num_steps=4000", "validation.interval=null")
    run_id = bench.submit(apply_settings(load_preset("chains-exgrpo"), list(changes)))
    environment = os.environ | {"EXGRPO_TOKEN": "a" * 16, "EXGRPO_STOP_RUNS": "1"}
    process = start(bench.runs_root, "up", "--no-browser", "--port", "0", module="exgrpo.jobs.cli", env=environment)
    link = process.stdout.readline().strip()
    assert urllib.request.urlopen(f"{link}?token={'a' * 16}", timeout=30).status == 200
    bench.wait_for_step(run_id, 2)
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=60)
    assert (process.returncode, "a" * 16 in output + errors) == (0, False)
    state = read_state(bench.run_of(run_id))
    assert (state.status, state.reason) == (RunStatus.STOPPED, INTERRUPTED)
    assert list_steps(bench.run_of(run_id).checkpoints_path) == [state.heartbeat.step]


class NOBODY:
    pid = 0
