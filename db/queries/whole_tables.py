"""All rows of one run in one table, for notebooks and files."""

from typing import Any

from sqlalchemy import select

from exgrpo.db.connections.session import Database
from exgrpo.db.statistics import score_interval
from exgrpo.db.tables import models
from exgrpo.db.tables.shared_reads import require_run_key

_SCORES = {"evaluations": "avg_at_n", "benchmark_scores": "score"}
"""Of each table of scores the column with the score."""


def whole_table(database: Database, run_id: str, name: str) -> list[dict[str, Any]]:
    """Return every row of a table that a run has and no later attempt repeated.

    Scores have the ends of their 95% interval over questions, `interval_low` and `interval_high`.

    Raises:
        UnknownRunError: There is no such run.
    """
    table = models.metadata.tables[name]
    query = select(*(column for column in table.c if column.name != "run_key"))
    with database.read() as connection:
        query = query.where(table.c.run_key == require_run_key(connection, run_id)).order_by(*table.primary_key)
        rows = [dict(row) for row in connection.execute(query).mappings()]
    for row in rows if name in _SCORES else ():
        ends = score_interval(row[_SCORES[name]], row["standard_error"], len(row["question_ids"]))
        row["interval_low"], row["interval_high"] = ends
    return rows
