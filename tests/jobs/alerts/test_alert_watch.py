import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime

import psutil
import pytest

from db.connections.opening import open_database
from db.ingest import events
from jobs.actions import run_actions
from jobs.alerts import watch
from jobs.alerts.destinations import URLS_VARIABLE
from jobs.alerts.watch import SENT_LOG_FILE, AlertWatch, SentLog, watch_from_environment
from jobs.runs.control import RunStatus
from tests.jobs.alerts.receiver import SECRET
from tests.jobs.supervisor.toy_bench import toy_spec, wait_until


@pytest.fixture(autouse=True)
def _room_on_the_disk(monkeypatch):
    monkeypatch.setattr(watch, "MIN_FREE_GIB", 0.0)


def watch_for(bench, *urls: str) -> AlertWatch:
    return AlertWatch(bench.runs_root, None, {URLS_VARIABLE: " ".join(urls)})


def fail_a_run(bench) -> str:
    bench.start()
    run_id = bench.submit(toy_spec(3, "fails"))
    bench.look_until(run_id, RunStatus.FAILED)
    bench.supervisor.poll()
    return run_id


def test_a_failed_run_is_told_once_and_not_again_after_a_restart(bench, receiver):
    run_id = fail_a_run(bench)
    first = watch_for(bench, receiver.url)
    first.poll()
    first.poll()
    assert receiver.titles == ["toy failed"]
    assert "data.source: the toy data are missing." in receiver.messages[0]["message"]
    assert run_id in receiver.messages[0]["message"]
    watch_for(bench, receiver.url).poll()
    assert receiver.titles == ["toy failed"]


def test_a_failed_run_is_told_that_is_hidden_or_older_than_hundreds_of_others(bench, receiver):
    run_id = fail_a_run(bench)
    run_actions.archive(bench.runs_root, run_id, True)
    bench.supervisor.poll()
    with closing(open_database(None, bench.runs_root)) as database:
        for number in range(501):
            info = {"run_id": f"later-{number}", "name": "later", "created_at": datetime.now(UTC).isoformat()}
            events.register_run(database, info, {})
            events.set_status(database, info["run_id"], "queued" if number % 2 else "finished")
    watch_for(bench, receiver.url).poll()
    assert receiver.titles == ["toy failed"]


def test_a_destination_that_moves_in_the_list_is_told_nothing_again_and_a_new_one_everything(bench, receiver):
    fail_a_run(bench)
    watch_for(bench, receiver.url).poll()
    new = f"{receiver.url}/new"
    watch_for(bench, new, receiver.url).poll()
    watch_for(bench, receiver.url, new).poll()
    assert receiver.titles == ["toy failed"] * 2


def test_a_set_up_that_cannot_be_read_holds_up_no_supervisor_and_is_logged_once(bench, receiver, monkeypatch, caplog):
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    fail_a_run(bench)
    sent_log = bench.runs_root / "workbench" / SENT_LOG_FILE
    sent_log.mkdir()
    monkeypatch.setenv(URLS_VARIABLE, receiver.url)
    alerts = watch_from_environment(bench.runs_root, None)
    wait_until(lambda: bool(caplog.messages), "the log")
    time.sleep(0.1)
    assert [record.getMessage() for record in caplog.records if record.name == watch.__name__] == [
        "Alerts are late: IsADirectoryError; trying again."
    ]
    sent_log.rmdir()
    wait_until(lambda: bool(receiver.messages), "the message")
    alerts.close()


def test_a_url_that_is_none_ends_the_alerts_alone_and_is_taken_out_of_the_environment(bench, monkeypatch, caplog):
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    monkeypatch.setenv(URLS_VARIABLE, f"nonsense://{SECRET}")
    alerts = watch_from_environment(bench.runs_root, None)
    assert URLS_VARIABLE not in os.environ
    wait_until(lambda: "No alerts are sent: alert URL 1 of 1: " in caplog.text, "the log")
    alerts.close()
    assert SECRET not in caplog.text


def test_a_killed_run_is_lost_and_a_resumed_one_that_fails_again_is_told_again(bench, receiver):
    bench.start()
    run_id = bench.submit(toy_spec(2000))
    bench.look_until(run_id, RunStatus.RUNNING)
    os.kill(bench.worker_pid(run_id), signal.SIGKILL)
    bench.look_until(run_id, RunStatus.LOST)
    bench.supervisor.poll()
    alerts = watch_for(bench, receiver.url)
    alerts.poll()
    assert receiver.titles == ["toy was lost"]
    run_actions.resume(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.RUNNING)
    os.kill(bench.worker_pid(run_id), signal.SIGKILL)
    bench.look_until(run_id, RunStatus.LOST)
    bench.supervisor.poll()
    alerts.poll()
    assert receiver.titles == ["toy was lost"] * 2


def test_a_destination_that_is_down_gets_its_message_later_and_the_others_get_theirs_once(
    bench, receiver, monkeypatch, caplog
):
    monkeypatch.setattr(watch, "RETRY_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"json://127.0.0.1:{closed.getsockname()[1]}/{SECRET}"
    fail_a_run(bench)
    receiver.refuses = True
    alerts = watch_for(bench, receiver.url, nobody)
    alerts.poll()
    assert receiver.messages == []
    receiver.refuses = False
    alerts.poll()
    alerts.poll()
    assert receiver.titles == ["toy failed"]
    messages = [record.getMessage() for record in caplog.records if record.name == watch.__name__]
    assert messages == [
        f"Alert destination {name} did not accept a message; trying again every minute."
        for name in ("1 (json)", "2 (json)")
    ]
    assert SECRET not in caplog.text


def test_a_destination_that_is_down_is_left_in_peace_for_a_minute(bench, receiver):
    fail_a_run(bench)
    receiver.refuses = True
    alerts = watch_for(bench, receiver.url)
    alerts.poll()
    receiver.refuses = False
    alerts.poll()
    assert receiver.messages == []


def test_a_nearly_full_disk_is_told_before_there_is_any_run(bench, receiver, monkeypatch):
    monkeypatch.setattr(watch, "MIN_FREE_GIB", 1e9)
    bench.start().poll()
    watch_for(bench, receiver.url).poll()
    assert receiver.titles == ["The disk of the runs is nearly full"]


def test_the_thread_outlives_whatever_a_look_raises(bench, receiver, monkeypatch, caplog):
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    fail_a_run(bench)
    alerts = watch_for(bench, receiver.url)
    poll, calls = alerts.poll, []

    def break_down_twice() -> None:
        calls.append(None)
        if len(calls) < 3:
            raise ZeroDivisionError(SECRET)
        poll()

    monkeypatch.setattr(alerts, "poll", break_down_twice)
    alerts.start()
    wait_until(lambda: bool(receiver.messages), "the message")
    alerts.close()
    assert [record.getMessage() for record in caplog.records if record.name == watch.__name__] == [
        "Alerts are late: ZeroDivisionError; trying again."
    ]


def test_a_line_of_the_log_that_was_cut_short_spoils_no_other(tmp_path):
    SentLog(tmp_path).add("run/1/failed", "0a1b2c3d")
    path = tmp_path / "workbench" / SENT_LOG_FILE
    with path.open("a") as file:
        file.write('{"at": "20')
    SentLog(tmp_path).add("run/2/failed", "0a1b2c3d")
    again = SentLog(tmp_path)
    assert again.has("run/1/failed", "0a1b2c3d")
    assert again.has("run/2/failed", "0a1b2c3d")
    assert not again.has("run/2/failed", "4e5f6a7b")


@pytest.mark.slow
@pytest.mark.slow
def test_a_supervisor_sends_and_leaves_its_secret_nowhere(bench, receiver):
    """The supervisor as `exgrpo up` starts it; the worker that it starts inherits no URL."""
    bench.submit(toy_spec(3, "fails"))
    slow = bench.submit(toy_spec(2000))
    command = [sys.executable, "-m", "tests.jobs.supervisor.toy_supervisor", "--runs-root", str(bench.runs_root)]
    log = bench.runs_root / "workbench" / "supervisor.log"
    with log.open("wb") as output:
        supervisor = subprocess.Popen(
            command, env=os.environ | {URLS_VARIABLE: receiver.url}, stdout=output, stderr=output
        )
    try:
        wait_until(lambda: "toy failed" in receiver.titles, "the alert")
        bench.wait_for_step(slow, 2)
        worker = psutil.Process(bench.worker_pid(slow))
        assert not worker.environ().get(URLS_VARIABLE)
        assert not any(
            SECRET in word for process in (worker, psutil.Process(supervisor.pid)) for word in process.cmdline()
        )
        run_actions.stop(bench.runs_root, slow)
        time.sleep(1)
    finally:
        supervisor.terminate()
        supervisor.wait(60)
    kept = [path for path in bench.runs_root.rglob("*") if path.is_file()]
    assert any(path.name == SENT_LOG_FILE for path in kept)
    assert [path for path in kept if SECRET.encode() in path.read_bytes()] == []
    entries = [json.loads(line) for line in (log.parent / SENT_LOG_FILE).read_text().splitlines()]
    assert [entry["destination"] for entry in entries if entry["key"].endswith("/failed")] == [
        hashlib.sha256(receiver.url.encode()).hexdigest()[:8]
    ]
