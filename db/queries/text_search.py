"""Full-text search: FTS5 on SQLite, a tsvector index on PostgreSQL; the same words find the same trajectories."""

import re

from sqlalchemy import Connection, text

from db.queries.run_lookup import find_run_key

_WORD = re.compile(r"\w+", re.UNICODE)
_SQLITE_QUERY = text(
    "SELECT rowid FROM trajectory_search WHERE trajectory_search MATCH :pattern ORDER BY rowid DESC LIMIT :limit"
)
_POSTGRESQL_QUERY = text(
    "SELECT trajectory_key FROM trajectory_texts WHERE search @@ plainto_tsquery('simple', :words)"
    " AND (CAST(:run_key AS integer) IS NULL OR run_key = :run_key) ORDER BY trajectory_key DESC LIMIT :limit"
)


def matching_keys(connection: Connection, words: str, run_id: str | None, limit: int) -> list[int]:
    """Return the keys of the newest trajectories whose text holds every word; none where there is no word."""
    found = _WORD.findall(words.replace("_", " "))
    run_key = None if run_id is None else find_run_key(connection, run_id)
    if not found or (run_id is not None and run_key is None):
        return []
    if connection.dialect.name == "sqlite":
        phrases = " AND ".join(f'text : "{word}"' for word in found)
        pattern = phrases if run_key is None else f'facets : "run{run_key}" AND {phrases}'
        rows = connection.execute(_SQLITE_QUERY, {"pattern": pattern, "limit": limit})
    else:
        values = {"words": " ".join(found), "run_key": run_key, "limit": limit}
        rows = connection.execute(_POSTGRESQL_QUERY, values)
    return list(rows.scalars())
