"""Full-text search: FTS5 on SQLite, a tsvector index on PostgreSQL; the same words find the same trajectories.

`exgrpo.db.rows.role_words` has the syntax of a search by role.
"""

from typing import Any

from sqlalchemy import Connection, TextualSelect, column, text

from exgrpo.db.ingest.event_rows import keys_of_run
from exgrpo.db.rows.role_words import CONVERSATION, searched
from exgrpo.db.tables.column_types import LargeInteger
from exgrpo_core.errors import FieldError

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
# PostgreSQL must not use the index of keys: it would unpack and search every text.
_ALL = {
    "sqlite": _MATCHING["sqlite"],
    "postgresql": (
        "SELECT trajectory_key AS hit FROM trajectory_texts WHERE search @@ to_tsquery('simple', :pattern)"
        " AND trajectory_key + 0 >= :first AND trajectory_key + 0 < :end"
    ),
}
_SYNTAX = {"sqlite": ('"', " OR ", " NOT "), "postgresql": ("'", " | ", " & !")}
"""Quotation mark, or, and not."""
_AND = {"sqlite": " AND ", "postgresql": " & "}


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


def newest_matching(
    connection: Connection, words: str, run_key: int | None, *, before: int | None, limit: int
) -> list[int]:
    """Return the keys of the newest trajectories below `before` whose text contains every word, newest first."""
    values = _values(connection, words, run_key)
    if not values:
        return []
    if before is not None:
        values["end"] = min(before, values["end"])
    query = f"{_MATCHING[connection.dialect.name]} ORDER BY hit DESC LIMIT :limit"
    return [*connection.scalars(text(query), values | {"limit": limit})]


def all_matching(connection: Connection, words: str, run_key: int | None) -> TextualSelect | None:
    """Return what selects the keys of all trajectories whose text contains every word; None without a word."""
    values = _values(connection, words, run_key)
    query = text(_ALL[connection.dialect.name])
    return query.bindparams(**values).columns(column("hit", LargeInteger)) if values else None


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
    first, end = (0, _LAST_KEY) if run_key is None else keys_of_run(run_key)
    return {"pattern": _AND[connection.dialect.name].join(conditions), "first": first, "end": end}
