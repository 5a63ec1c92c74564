"""What a database holds, read from its tables, to compare two of them."""

import math

from sqlalchemy import select

from exgrpo.db.tables import models


def contents(database):
    """Return all rows of all tables, sorted; NaN as the word, so that equal contents compare equal."""
    with database.read() as connection:
        return {
            table.name: sorted((tuple(map(_comparable, row)) for row in connection.execute(select(table))), key=repr)
            for table in models.metadata.sorted_tables
        }


def buffer_changes(database, run_id):
    """Return (step, kind, question, trajectory, bucket before, bucket after) of a run's changes, in order."""
    changes = models.buffer_changes
    names = ("step", "kind", "question_index", "trajectory_id", "bucket_from", "bucket_to")
    query = select(*(changes.c[name] for name in names)).join(models.runs)
    query = query.where(models.runs.c.run_id == run_id)
    with database.read() as connection:
        return [tuple(row) for row in connection.execute(query.order_by(changes.c.step, changes.c.position))]


def _comparable(value):
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
