"""Full-text search: FTS5 on SQLite, a tsvector index on PostgreSQL; the same words find the same trajectories."""

import re
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from db.event_rows import trajectory_key
from db.queries.run_lookup import find_run_key

Keys = npt.NDArray[np.int64]
"""Trajectory keys."""
_BATCH = 5_000
_LAST_KEY = 2**63 - 1
_WORD = re.compile(r"\w+", re.UNICODE)
_SQLITE_QUERY = (
    "SELECT rowid FROM trajectory_search WHERE trajectory_search MATCH :pattern AND rowid >= :first AND rowid < :end"
    " ORDER BY rowid DESC"
)
_POSTGRESQL_QUERY = (
    "SELECT trajectory_key FROM trajectory_texts WHERE search @@ plainto_tsquery('simple', :words)"
    " AND trajectory_key >= :first AND trajectory_key < :end ORDER BY trajectory_key DESC"
)


def split_words(words: str) -> list[str]:
    """Return the words to look for, none where there is no letter or digit."""
    return _WORD.findall(words.replace("_", " "))


def matching_keys(connection: Connection, words: str, run_id: str | None, limit: int) -> list[int]:
    """Return the keys of the newest trajectories whose text holds every word; none where there is no word."""
    run_key = None if run_id is None else find_run_key(connection, run_id)
    if run_id is not None and run_key is None:
        return []
    return [int(key) for batch in found_keys(connection, words, run_key, limit=limit) for key in batch]


def found_keys(
    connection: Connection, words: str, run_key: int | None, *, before: int | None = None, limit: int | None = None
) -> Iterator[Keys]:
    """Give the keys of the trajectories whose text holds every word, newest first, a batch at a time."""
    found = split_words(words)
    if not found:
        return
    first = 0 if run_key is None else trajectory_key(run_key, 0, 0)
    end = _LAST_KEY if run_key is None else trajectory_key(run_key + 1, 0, 0)
    values = {"first": first, "end": end if before is None else min(before, end)}
    query = _SQLITE_QUERY if connection.dialect.name == "sqlite" else _POSTGRESQL_QUERY
    if limit is not None:
        query, values = f"{query} LIMIT :limit", values | {"limit": limit}
    said = " AND ".join(f'text : "{word}"' for word in found) if connection.dialect.name == "sqlite" else ""
    rows = connection.execute(text(query), {**values, "pattern": said, "words": " ".join(found)}).scalars()
    for batch in rows.partitions(_BATCH):
        yield np.array(batch, dtype=np.int64)
