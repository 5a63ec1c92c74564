import dataclasses
from datetime import UTC, datetime, timedelta

import pytest

from db.rows.runs import RunRow
from jobs.alerts import watch
from jobs.alerts.watch import disk_alert_events, run_alert_events

NOW = datetime(2026, 5, 4, 12, 0, tzinfo=UTC)


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
    [("stalled", "arc stalls"), ("entropy_collapse", "arc has collapsed"), ("empty_buffer", "arc has an empty buffer")],
)
def test_bad_health_is_told_in_the_words_of_the_run_report(badge, title):
    at = NOW - timedelta(minutes=16)
    (found,) = run_alert_events([row(health=(badge, "no_reward"), last_event_at=at)], NOW)
    assert found.title == title
    assert found.body.endswith("Run 20260504-115500-aaaaaa.")


@pytest.mark.parametrize("status", ["queued", "starting", "running", "stopping", "stopped", "finished"])
def test_a_healthy_run_gives_no_occasion(status):
    assert run_alert_events([row(status=status)], NOW) == []


def test_history_and_made_up_runs_give_no_occasion():
    old = NOW - timedelta(days=1, seconds=1)
    assert run_alert_events([row(status="failed", created_at=old, last_event_at=old, ended_at=old)], NOW) == []
    assert run_alert_events([row(status="failed", is_synthetic=True)], NOW) == []


def test_a_resumed_run_that_fails_again_is_another_occasion():
    first, second = (run_alert_events([row(status="failed", attempt=attempt)], NOW)[0] for attempt in (1, 2))
    assert first.key != second.key


@pytest.mark.parametrize(
    ("minutes", "changes"), [(5, {"step": 0, "seconds_per_step": None}), (14, {}), (16, {"seconds_per_step": 60.0})]
)
def test_a_run_that_loads_validates_or_has_long_steps_does_not_stall(minutes, changes):
    at = NOW - timedelta(minutes=minutes)
    assert run_alert_events([row(health=("stalled",), last_event_at=at, **changes)], NOW) == []


def test_a_stall_is_one_occasion_until_the_run_went_on():
    stalled = row(health=("stalled",))
    first, second = NOW + timedelta(minutes=16), NOW + timedelta(minutes=30)
    later = run_alert_events([stalled], second)
    assert later == run_alert_events([stalled], first)
    again = row(health=("stalled",), last_event_at=NOW)
    assert run_alert_events([again], second)[0].key != later[0].key


def test_a_disk_that_is_nearly_full_is_told_once_a_day(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "MIN_FREE_GIB", 1e9)
    today, later, tomorrow = (disk_alert_events(tmp_path, NOW + timedelta(hours=hours))[0] for hours in (0, 9, 24))
    assert today.title == "The disk of the runs is nearly full"
    assert "GiB are free" in today.body
    assert today.key == later.key != tomorrow.key
    monkeypatch.setattr(watch, "MIN_FREE_GIB", 0.0)
    assert disk_alert_events(tmp_path, NOW) == []
