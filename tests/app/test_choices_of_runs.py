"""Choices of training runs hold them however many newer jobs of other kinds there are."""

from dataclasses import replace

import pytest

from app.queries import benchmarks
from app.queries import runs as run_queries
from db import ingest
from db.session import open_database
from tests.app import played, recorded
from tests.db.recorded_scores import record_scores


@pytest.fixture
def evaluated(played_runs, monkeypatch):
    """Played runs below more evaluations than a page of runs holds."""
    monkeypatch.setattr(run_queries, "RUNS_PAGE_SIZE", len(played.ALL))
    database = open_database(None, played_runs)
    for number in range(len(played.ALL)):
        record_scores(database, played_runs, run_id=f"eval-{number}")
    database.close()


@pytest.mark.usefixtures("evaluated")
@pytest.mark.parametrize(
    ("page", "kind", "key"),
    [
        ("trajectories", "selectbox", "run-choice"),
        ("compare", "multiselect", "runs-choice"),
        ("new_run", "selectbox", "diff-choice"),
        ("replay_buffer", "selectbox", f"against-{played.FINISHED.run_id}"),
        ("benchmarks", "selectbox", "evaluate-target"),
    ],
)
def test_runs_are_offered_below_many_newer_evaluations(open_page, page, kind, key):
    opened = open_page(page, run=played.FINISHED.run_id, start="true")
    assert not opened.exception
    [choice] = [own for own in opened.get(kind) if own.key == key]
    assert any(played.FAILED.name in option for option in choice.options)


def test_evaluations_that_broke_are_found_below_newer_runs_of_that_name(runs_root, monkeypatch):
    monkeypatch.setattr(run_queries, "RUNS_PAGE_SIZE", 1)
    database = open_database(None, runs_root)
    for run_id in ("eval-broken", "eval-named"):
        record_scores(database, runs_root, run_id=run_id)
        ingest.set_status(database, run_id, "failed", "no data", attempt=1)
    database.close()
    recorded.record(runs_root, replace(recorded.FAILED, name="evaluation"))
    assert [row.run_id for row in benchmarks.broken_evaluations()] == ["eval-named"]
