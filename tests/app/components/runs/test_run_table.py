from datetime import UTC, datetime, timedelta

import pytest

from exgrpo.app.components.runs import run_table
from exgrpo.app.components.widgets import run_state
from tests.app.components.runs.test_run_groups import row

pytestmark = pytest.mark.slow


def test_every_column_that_is_no_field_of_the_specification_has_cells(monkeypatch):
    without_cells = []
    monkeypatch.setattr(run_table, "field_values", lambda _rows, names: without_cells.extend(names) or {})
    run_table.table([], (*run_table.DEFAULT_COLUMNS, *run_table.FURTHER_COLUMNS))
    assert without_cells == [], "app/components/runs/run_table.py: give it cells in `table`."


@pytest.mark.parametrize("kinds", [(), ("train",), ("eval",), ("judge",)])
def test_every_kind_of_job_has_columns_of_its_own_and_a_failure_is_the_last_that_a_window_cuts(kinds):
    usual = run_table.usual_columns(kinds)
    assert len({*usual}) == len(usual) <= len(run_table.DEFAULT_COLUMNS)
    assert {"State", "Run", "Progress", "Reason", "Tags"} <= {*usual} <= {*run_table.DEFAULT_COLUMNS, "Data"}
    assert ("Curve" in usual) == ("Health" in usual) == (kinds in {(), ("train",)})
    assert ("Model" in usual) == ("Batch Pass@1" in usual) == (kinds == ("train",))


def test_a_file_of_runs_has_ids_names_and_times_as_they_are():
    created = datetime(2026, 1, 2, 12, tzinfo=UTC)
    times = {"created_at": created, "started_at": created + timedelta(hours=1)}
    progress = {"step": 7, "num_steps": 25, "status": "stopped", "has_settings": True}
    job = row(0.5, name="arc", engine="verl", **times, **progress)
    frame = run_table.exported([job], ("Run", "Created", "Started", "Engine", "Step", "Progress"))
    assert [*frame] == ["Id", "Run", "Created", "Started", "Engine", "Step", "Progress"]
    assert frame.iloc[0].tolist() == [job.run_id, "arc", created, created + timedelta(hours=1), "verl", 7, 28.0]


@pytest.mark.parametrize(
    ("changes", "fraction", "seconds"),
    [
        ({}, 0.05, 1900.0),
        ({"token_budget": 300, "generated_tokens": 100.0}, 1 / 3, 200.0),
        ({"token_budget": 300, "generated_tokens": 0.0}, 0.05, 1900.0),
        ({"token_budget": 300_000, "generated_tokens": 100.0}, 0.05, 1900.0),
        ({"token_budget": 300, "generated_tokens": 301.0, "status": "finished"}, 1.0, None),
    ],
)
def test_a_run_that_ends_by_its_tokens_is_as_far_as_these_are(changes, fraction, seconds):
    run = row(0.5, **{"step": 50, "num_steps": 1000, "seconds_per_step": 2.0, "status": "running"} | changes)
    assert run_state.fraction(run) == pytest.approx(fraction)
    assert run_state.seconds_left(run) == (None if seconds is None else pytest.approx(seconds))


@pytest.mark.parametrize(("seconds_ago", "least", "most"), [(30.0, 90.0, 95.0), (-3600.0, None, None)])
def test_the_time_left_of_a_job_whose_clock_was_set_back_is_unknown(monkeypatch, seconds_ago, least, most):
    monkeypatch.setattr(run_state, "pieces", lambda _row: (5, 20))
    job = row(None, kind="eval", status="running", started_at=datetime.now(UTC) - timedelta(seconds=seconds_ago))
    left = run_state.seconds_left(job)
    assert left is None if least is None else least <= left <= most
