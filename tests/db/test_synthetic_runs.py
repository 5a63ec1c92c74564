import pytest
from sqlalchemy import func, select

from bench.synthetic_runs import SyntheticSize, add_synthetic_runs
from exgrpo.db.connections.opening import find_difference
from exgrpo.db.queries import metrics, runs
from exgrpo.db.tables import models
from tests.db.recorded_runs import ingest_run, new_run, record_attempt

pytestmark = pytest.mark.slow


@pytest.fixture
def template(database, tmp_path):
    """The id of a run of eight steps, the last three of which were done twice."""
    run = new_run(tmp_path, run_id="recorded")
    record_attempt(run, range(1, 9))
    record_attempt(run, range(6, 9), seed=2)
    ingest_run(database, run)
    return run.run_id


def count(database, table, run_key):
    with database.read() as connection:
        return connection.scalar(select(func.count()).where(table.c.run_key == run_key))


def test_made_up_runs_have_the_asked_size_and_say_what_they_are(database, template):
    recorded = metrics.metric_series(database, template, ["reward/mean"])["reward/mean"]
    add_synthetic_runs(database, template, SyntheticSize(4, 20, 400), lambda _said: None)
    made = [row for row in runs.list_runs(database) if row.run_id != template]
    assert len(made) == 4
    assert all(row.is_synthetic and "synthetic" in row.name and row.tags == ("synthetic",) for row in made)
    assert not runs.get_run(database, template).is_synthetic
    assert {row.num_steps for row in made} == {row.step for row in made} == {20}
    for row in made:
        points = metrics.metric_series(database, row.run_id, ["reward/mean"])["reward/mean"]
        assert [point.step for point in points] == list(range(1, 21))
        assert max(point.value for point in points) <= max(point.value for point in recorded)
    total = sum(count(database, models.trajectories, key) for key in range(2, 6))
    assert 300 <= total <= 500
    assert count(database, models.trajectories, 2) > total / 2
    assert len(metrics.list_evaluations(database, made[0].run_id)) == 2
    assert find_difference(database) is None  # indexes are there again
    if not database.is_sqlite:
        with database.read() as connection:
            names = set(connection.exec_driver_sql("SELECT indexname FROM pg_indexes").scalars())
        assert "steps_pkey" in names
