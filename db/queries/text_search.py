"""Full-text search: FTS5 on SQLite, a tsvector index on PostgreSQL; the same words find the same trajectories.

`db.rows.role_words` has the syntax of a search by role.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, text

from db.ingest.event_rows import trajectory_key
from db.rows.role_words import CONVERSATION, searched
from exgrpo_core.errors import FieldError

Keys = npt.NDArray[np.int64]
"""Trajectory keys."""
_LAST_KEY = 2**63 - 1
MAX_WORDS, MAX_CHARACTERS = 30, 400
"""Of a search, of which each word costs a condition in SQL."""
_MATCHING = {
    "sqlite": (
        "SELECT rowid AS hit FROM trajectory_search"
        " WHERE trajectory_search MATCH :pattern AND rowid >= :first AND rowid < :end"
    ),
    "postgresql": (
        "SELECT trajectory_key AS hit FROM trajectory_texts"
        " WHERE search @@ to_tsquery('simple', :pattern) AND trajectory_key >= :first AND trajectory_key < :end"
    ),
}
# One long text is several times faster than a row per trajectory. PostgreSQL must not use the index of keys: it would
# unpack and search every text.
_ALL = {
    "sqlite": f"SELECT group_concat(hit - :first) FROM ({_MATCHING['sqlite']} LIMIT :limit)",
    "postgresql": (
        "SELECT string_agg(CAST(hit - :first AS text), ',') FROM"
        " (SELECT trajectory_key AS hit FROM trajectory_texts"
        " WHERE search @@ to_tsquery('simple', :pattern)"
        " AND trajectory_key + 0 >= :first AND trajectory_key + 0 < :end LIMIT :limit) AS hits"
    ),
}
_SYNTAX = {"sqlite": ('"', " OR ", " NOT "), "postgresql": ("'", " | ", " & !")}
"""Quotation mark, or, and not."""
_AND = {"sqlite": " AND ", "postgresql": " & "}
_WORD_INDEX_SETTINGS = {
    "enable_seqscan": "off",
    "enable_indexscan": "off",
    "jit": "off",
    "work_mem": "'64MB'",
    "max_parallel_workers_per_gather": "0",
}


class SearchError(FieldError):
    """A search that would take minutes, or a word of it that cannot be read; one sentence says what it may have."""


def check_search(words: str) -> None:
    """Refuse a search whose time or memory would grow with its length.

    Raises:
        SearchError: It has more than `MAX_WORDS` words or `MAX_CHARACTERS` characters.
    """
    num_words = len(words.split())
    if num_words > MAX_WORDS or len(words) > MAX_CHARACTERS:
        raise SearchError(
            f"expected at most {MAX_WORDS} words and {MAX_CHARACTERS} characters, got {num_words:,} and "
            f"{len(words):,}; leave some out.",
            "Search",
        )


def split_words(words: str) -> list[str]:
    """Return the words to look for as they are written, none without a letter or digit.

    Raises:
        SearchError: There are too many.
    """
    check_search(words)
    return [written for _, written, _ in searched(words) if written]


def newest_matching(connection: Connection, words: str, run_key: int | None, *, before: int | None, limit: int) -> Keys:
    """Return the keys of the newest trajectories below `before` whose text contains every word, newest first."""
    values = _values(connection, words, run_key)
    if not values:
        return np.empty(0, dtype=np.int64)
    if before is not None:
        values["end"] = min(before, values["end"])
    query = f"{_MATCHING[connection.dialect.name]} ORDER BY hit DESC LIMIT :limit"
    return np.array(connection.scalars(text(query), values | {"limit": limit}).all(), dtype=np.int64)


def all_matching(connection: Connection, words: str, run_key: int | None, limit: int = 2**62) -> Keys:
    """Return the keys of all trajectories whose text contains every word, or of any `limit` of them."""
    values = _values(connection, words, run_key)
    if not values:
        return np.empty(0, dtype=np.int64)
    with _by_word_index(connection):
        offsets_text = connection.scalar(text(_ALL[connection.dialect.name]), values | {"limit": limit}) or ""
    offsets: Keys = np.fromstring(offsets_text, dtype=np.int64, sep=",")
    return offsets + np.int64(values["first"])


@contextmanager
def _by_word_index(connection: Connection) -> Iterator[None]:
    """Make PostgreSQL use the index of words, however common they are."""
    settings = {} if connection.dialect.name == "sqlite" else _WORD_INDEX_SETTINGS
    for name, value in settings.items():
        connection.exec_driver_sql(f"SET LOCAL {name} = {value}")
    yield
    for name in settings:
        connection.exec_driver_sql(f"SET LOCAL {name} TO DEFAULT")


def _condition(word: str, written: str, may_be_plain: bool, quote: str, either: str, without: str) -> str:
    """Return the condition for a word, which consists of letters and digits, in a dialect's syntax."""
    if not may_be_plain:
        return f"{quote}{word}{quote}"
    plain = f"{quote}{written}{quote}{without}{quote}{CONVERSATION}{quote}"
    return f"({quote}{word}{quote}{either}({plain}))"


def _values(connection: Connection, words: str, run_key: int | None) -> dict[str, Any]:
    """Return a search's pattern and range of keys, empty without a word."""
    check_search(words)
    conditions = [_condition(*found, *_SYNTAX[connection.dialect.name]) for found in searched(words)]
    if not conditions:
        return {}
    return {
        "pattern": _AND[connection.dialect.name].join(conditions),
        "first": 0 if run_key is None else trajectory_key(run_key, 0, 0),
        "end": _LAST_KEY if run_key is None else trajectory_key(run_key + 1, 0, 0),
    }
