import dataclasses
import hashlib
import json
import os
import socket
import subprocess
import sys
import time
from contextlib import closing
from datetime import UTC, datetime, timedelta

import psutil
import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.db.ingest import annotations, events
from exgrpo.db.rows.runs import RunRow
from exgrpo.jobs.actions import run_actions
from exgrpo.jobs.execution.alerts import watch
from exgrpo.jobs.execution.alerts.destinations import URLS_VARIABLE
from exgrpo.jobs.execution.alerts.watch import (
    SENT_LOG_FILE,
    AlertWatch,
    SentLog,
    disk_alert_events,
    run_alert_events,
    watch_from_environment,
)
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.specs.train import TrainSpec
from tests.jobs.execution.alerts.conftest import SECRET
from tests.jobs.execution.supervisor.toy_bench import toy_spec, wait_until

pytestmark = pytest.mark.slow

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


@pytest.fixture(autouse=True)
def _room_on_the_disk(monkeypatch):
    monkeypatch.setattr(watch, "MIN_FREE_GIB", 0.0)


def row(**changes: object) -> RunRow:
    at = NOW - timedelta(minutes=5)
    fields = {field.name: None for field in dataclasses.fields(RunRow)}
    fields |= {"run_id": "20260504-115500-aaaaaa", "name": "arc", "status": "running", "status_reason": ""}
    fields |= {"step": 40, "num_steps": 200, "attempt": 1, "created_at": at, "last_event_at": at, "health": ()}
    fields |= {"is_synthetic": False, "seconds_per_step": 4.0}
    return RunRow(**(fields | changes))


@pytest.mark.parametrize(("status", "title"), [("failed", "arc failed"), ("lost", "arc was lost")])
def test_a_failed_and_a_lost_run_are_told_with_their_reason(status, title):
    (found,) = run_alert_events([row(status=status, status_reason="The disk is full.", ended_at=NOW)], NOW)
    assert found.title == title
    assert found.body == "The disk is full.\nStep 40 of 200, attempt 1.\nRun 20260504-115500-aaaaaa."


@pytest.mark.parametrize(
    ("badge", "title"),
    [
        ("stalled", "arc stalls"),
        ("entropy_collapse", "arc has collapsed"),
        ("empty_buffer", "arc has an empty buffer"),
        ("no_gradient", "arc learns nothing"),
    ],
)
def test_bad_health_is_told(badge, title):
    at = NOW - timedelta(minutes=16)
    (found,) = run_alert_events([row(health=(badge, "not_shown"), last_event_at=at)], NOW)
    assert found.title == title


def test_no_reward_is_told_once_though_the_buffer_is_empty_too():
    (found,) = run_alert_events([row(health=("no_reward", "empty_buffer"))], NOW)
    assert found.key.endswith("/no_reward")


OLD = NOW - timedelta(days=1, seconds=1)


@pytest.mark.parametrize(
    "changes",
    [
        *({"status": status} for status in ("queued", "starting", "running", "stopping", "stopped", "finished")),
        {"status": "failed", "created_at": OLD, "last_event_at": OLD, "ended_at": OLD},
        {"status": "failed", "is_synthetic": True},
        {"health": ("stalled",), "step": 0, "seconds_per_step": None},
        {"health": ("stalled",), "last_event_at": NOW - timedelta(minutes=14)},
        {"health": ("stalled",), "last_event_at": NOW - timedelta(minutes=16), "seconds_per_step": 60.0},
    ],
)
def test_a_healthy_old_or_made_up_run_and_one_that_loads_or_has_long_steps_give_no_occasion(changes):
    assert run_alert_events([row(**changes)], NOW) == []


def test_a_resumed_run_that_fails_again_is_another_occasion_and_a_stall_one_until_the_run_continues():
    first, second = (run_alert_events([row(status="failed", attempt=attempt)], NOW)[0] for attempt in (1, 2))
    assert first.key != second.key
    soon, later = NOW + timedelta(minutes=16), NOW + timedelta(minutes=30)
    stalled = run_alert_events([row(health=("stalled",))], later)
    assert stalled == run_alert_events([row(health=("stalled",))], soon)
    assert run_alert_events([row(health=("stalled",), last_event_at=NOW)], later)[0].key != stalled[0].key


def test_a_disk_that_is_nearly_full_is_told_once_a_day(tmp_path, monkeypatch):
    assert disk_alert_events(tmp_path, NOW) == []
    monkeypatch.setattr(watch, "MIN_FREE_GIB", 1e9)
    today, later, tomorrow = (disk_alert_events(tmp_path, NOW + timedelta(hours=hours))[0] for hours in (0, 9, 24))
    assert today.key == later.key != tomorrow.key


@pytest.fixture
def failed(tmp_path):
    run = RunDirectory.create(tmp_path, TrainSpec(name="toy"))
    with closing(open_database(None, tmp_path)) as database:
        events.register_run(database, run.read_run_info(), {})
        events.set_status(database, run.run_id, "failed", "The data are missing.")
    return tmp_path


def watch_for(runs_root, *urls: str) -> AlertWatch:
    return AlertWatch(runs_root, None, {URLS_VARIABLE: " ".join(urls)})


def logged(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == watch.__name__]


def test_a_failed_run_is_told_once_and_not_again_after_a_restart(failed, receiver):
    first = watch_for(failed, receiver.url)
    first.poll()
    first.poll()
    assert receiver.titles == ["toy failed"]
    assert "The data are missing." in receiver.messages[0]["message"]
    watch_for(failed, receiver.url).poll()
    assert receiver.titles == ["toy failed"]


def test_a_failed_run_is_told_that_is_hidden_and_older_than_hundreds_of_others(failed, receiver):
    (run_id,) = (path.parent.name for path in failed.glob("*/run.json"))
    with closing(open_database(None, failed)) as database:
        annotations.change_run(database, run_id, is_archived=True)
        for number in range(501):
            info = {"run_id": f"later-{number}", "name": "later", "created_at": datetime.now(UTC).isoformat()}
            events.register_run(database, info, {})
            events.set_status(database, info["run_id"], "queued" if number % 2 else "finished")
    watch_for(failed, receiver.url).poll()
    assert receiver.titles == ["toy failed"]


def test_a_destination_that_moves_in_the_list_is_told_nothing_again_and_a_new_one_everything(failed, receiver):
    watch_for(failed, receiver.url).poll()
    new = f"{receiver.url}/new"
    watch_for(failed, new, receiver.url).poll()
    watch_for(failed, receiver.url, new).poll()
    assert receiver.titles == ["toy failed"] * 2


def test_a_log_that_cannot_be_read_holds_up_no_supervisor_and_is_named_once(failed, receiver, monkeypatch, caplog):
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    sent_log = failed / "workbench" / SENT_LOG_FILE
    sent_log.mkdir(parents=True)
    monkeypatch.setenv(URLS_VARIABLE, receiver.url)
    alerts = watch_from_environment(failed, None)
    wait_until(lambda: bool(caplog.messages), "the log")
    time.sleep(0.1)
    assert logged(caplog) == ["Alerts are late: IsADirectoryError; trying again."]
    sent_log.rmdir()
    wait_until(lambda: bool(receiver.messages), "the message")
    alerts.close()


def test_a_url_that_is_none_ends_the_alerts_alone_and_is_taken_out_of_the_environment(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(watch, "POLL_SECONDS", 0.01)
    monkeypatch.setenv(URLS_VARIABLE, f"nonsense://{SECRET}")
    alerts = watch_from_environment(tmp_path, None)
    assert URLS_VARIABLE not in os.environ
    wait_until(lambda: "alert URL 1 of 1" in caplog.text, "the log")
    alerts.close()
    assert SECRET not in caplog.text


def test_a_destination_that_is_down_gets_its_message_a_minute_later_and_the_others_get_theirs_once(
    failed, receiver, monkeypatch, caplog
):
    with socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = f"json://127.0.0.1:{closed.getsockname()[1]}/{SECRET}"
    receiver.refuses = True
    alerts = watch_for(failed, receiver.url, nobody)
    alerts.poll()
    receiver.refuses = False
    alerts.poll()
    assert receiver.messages == []
    monkeypatch.setattr(watch.time, "monotonic", lambda now=time.monotonic: now() + watch.RETRY_SECONDS)
    alerts.poll()
    alerts.poll()
    assert receiver.titles == ["toy failed"]
    assert len(logged(caplog)) == 2
    assert SECRET not in caplog.text


def test_a_line_of_the_log_that_was_cut_short_spoils_no_other(tmp_path):
    SentLog(tmp_path).add("run/1/failed", "0a1b2c3d")
    with (tmp_path / "workbench" / SENT_LOG_FILE).open("a") as file:
        file.write('{"at": "20')
    SentLog(tmp_path).add("run/2/failed", "0a1b2c3d")
    again = SentLog(tmp_path)
    assert again.has("run/1/failed", "0a1b2c3d")
    assert again.has("run/2/failed", "0a1b2c3d")
    assert not again.has("run/2/failed", "4e5f6a7b")


@pytest.mark.slow
def test_a_supervisor_sends_and_leaves_its_secret_nowhere(bench, receiver):
    """The supervisor as `exgrpo up` starts it; the worker that it starts inherits no URL."""
    bench.submit(toy_spec(3, "fails"))
    slow = bench.submit(toy_spec(2000))
    command = [
        sys.executable,
        "-m",
        "tests.jobs.execution.supervisor.toy_supervisor",
        "--runs-root",
        str(bench.runs_root),
    ]
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
    assert [path for path in kept if SECRET.encode() in path.read_bytes()] == []
    entries = [json.loads(line) for line in (log.parent / SENT_LOG_FILE).read_text().splitlines()]
    assert [entry["destination"] for entry in entries if entry["key"].endswith("/failed")] == [
        hashlib.sha256(receiver.url.encode()).hexdigest()[:8]
    ]
