"""What a database holds, read from its tables, to compare two of them."""

from sqlalchemy import select

from exgrpo.db.tables import models


def contents(database):
    """Return all rows of all tables, sorted; NaN as the word, so that equal contents compare equal."""
    with database.read() as connection:
        rows = {table.name: connection.execute(select(table)).all() for table in models.metadata.sorted_tables}
    return {
        name: sorted((tuple(value if value == value else "NaN" for value in row) for row in of_table), key=repr)
        for name, of_table in rows.items()
    }


def buffer_changes(database, run_id):
    """Return (step, kind, question, trajectory, bucket before, bucket after) of a run's changes, in order."""
    changes = models.buffer_changes
    names = ("step", "kind", "question_index", "trajectory_id", "bucket_from", "bucket_to")
    query = select(*(changes.c[name] for name in names)).join(models.runs)
    query = query.where(models.runs.c.run_id == run_id)
    with database.read() as connection:
        return [tuple(row) for row in connection.execute(query.order_by(changes.c.step, changes.c.position))]
