import pytest
from sqlalchemy import select
from sqlalchemy.exc import DBAPIError

from db.ingest import events
from db.ingest.upsert import insert_new
from db.tables import models

RUN = {"run_id": "r", "name": "r", "created_at": "2026-01-01T00:00:00+00:00"}


def bucket(step, probability):
    row = {"run_key": 1, "step": step, "attempt": 1, "bucket": 1, "probability": probability}
    return row | {"num_questions": 1, "num_drawn": 1, "deficit": 0}


def test_rows_that_are_there_stay_and_numbers_of_all_kinds_are_stored(database):
    events.register_run(database, RUN, {})
    table = models.bucket_counts
    rows = [bucket(1, 1), bucket(2, 0.5), bucket(3, float("nan")), bucket(1, 9.0)]
    for _ in range(2):
        database.write(lambda connection: insert_new(connection, table, rows))
    with database.read() as connection:
        stored = connection.execute(select(table.c.step, table.c.probability).order_by("step")).all()
    assert [tuple(row) for row in stored[:2]] == [(1, 1.0), (2, 0.5)]
    assert stored[2].probability != stored[2].probability


def test_what_is_too_long_for_postgresql_is_refused_and_not_cut(database):
    events.register_run(database, RUN, {})
    if database.is_sqlite:
        pytest.skip("SQLite has no longest text")
    rows = [{"run_key": 1, "tag": "x" * 200}, {"run_key": 1, "tag": "y"}]
    with pytest.raises(DBAPIError):
        database.write(lambda connection: insert_new(connection, models.tags, rows))
