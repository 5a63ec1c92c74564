import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from db import ingest, models
from db.event_rows import METRIC_COLUMNS
from db.upsert import insert_new, insert_tuples

RUN = {"run_id": "r", "name": "r", "created_at": "2026-01-01T00:00:00+00:00"}


def metric(step, value, key="loss/total"):
    return {"run_key": 1, "key": key, "step": step, "attempt": 1, "value": value, "is_superseded": False}


def insert_as_tuples(connection, table, rows):
    """Insert the same as a caller that has values as drivers take them: no NaN, no whole numbers among the others."""
    as_driver = {"value": lambda value: None if value != value else float(value)}
    tuples = [tuple(as_driver.get(name, lambda own: own)(row[name]) for name in METRIC_COLUMNS) for row in rows]
    insert_tuples(connection, table, METRIC_COLUMNS, tuples)


pytestmark = pytest.mark.parametrize("insert", [insert_new, insert_as_tuples])


def test_rows_that_are_there_stay_and_numbers_of_all_kinds_are_stored(database, insert):
    ingest.register_run(database, RUN, {})
    rows = [metric(1, 1), metric(2, 0.5), metric(3, float("nan")), metric(1, 9.0)]
    for _ in range(2):
        database.write(lambda connection: insert(connection, models.metrics, rows))
    with database.read() as connection:
        found = connection.execute(select(models.metrics.c.step, models.metrics.c.value).order_by("step")).all()
    assert [tuple(row) for row in found[:2]] == [(1, 1.0), (2, 0.5)]
    assert found[2].value != found[2].value


def test_what_is_too_long_for_postgresql_is_refused_and_not_cut(database, insert):
    ingest.register_run(database, RUN, {})
    if database.is_sqlite:
        pytest.skip("SQLite has no longest text")
    rows = [metric(1, 1.0, key="x" * 200), metric(2, 1.0)]
    with pytest.raises(DBAPIError):
        database.write(lambda connection: insert(connection, models.metrics, rows))
