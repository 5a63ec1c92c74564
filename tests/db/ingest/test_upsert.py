import pytest
from sqlalchemy import BigInteger, select
from sqlalchemy.exc import DBAPIError

from exgrpo.db.ingest import events
from exgrpo.db.ingest.upsert import insert_new
from exgrpo.db.tables import models

RUN = {"run_id": "r", "name": "r", "created_at": "2026-01-01T00:00:00+00:00"}


def bucket(step, probability):
    row = {"run_key": 1, "step": step, "attempt": 1, "bucket": 1, "probability": probability}
    return row | {"num_questions": 1, "num_drawn": 1, "overflow": 0}


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


def test_what_does_not_fit_a_column_is_refused_by_every_database(database):
    events.register_run(database, RUN, {})
    for name, value in (("bucket", "x"), ("bucket", 1.5), ("bucket", []), ("bucket", 1026), ("step", 2**31)):
        rows = [bucket(1, 0.5), bucket(2, 0.5) | {name: value}]
        with pytest.raises((ValueError, DBAPIError)):
            database.write(lambda connection, rows=rows: insert_new(connection, models.bucket_counts, rows))


def test_numbers_that_outgrow_32_bits_have_64():
    columns = [column for table in models.metadata.sorted_tables for column in table.c]
    wide = [column for column in columns if column.name.endswith(("trajectory_id", "trajectory_key", "num_bytes"))]
    assert len(wide) > 12
    assert [str(column) for column in wide if not isinstance(column.type, BigInteger)] == []


def test_a_score_of_another_shape_is_refused(database):
    events.register_run(database, RUN, {})
    event = {
        "kind": "benchmark", "seq": 1, "attempt": 1, "at": RUN["created_at"], "benchmark": "amc", "title": "AMC",
        "samples_per_question": 1, "question_ids": ["q"], "num_correct": {"paper": [1]},
        "outcomes": {"paper": {"correct": 1}},
        "comparability": {}, "comparability_key": "k", "model": "m", "source_run_id": None, "source_step": None,
        "mean_tokens": 1.0, "truncated_share": 0.0, "seconds": 1.0,
    }  # fmt: skip
    assert events.ingest_events(database, "r", [event]) == 1
    for field in ("source_step", "title", "model", "comparability"):
        with pytest.raises(ValueError, match=field):
            events.ingest_events(database, "r", [event | {"seq": 2, "benchmark": "aime24", field: {"x": []}}])
