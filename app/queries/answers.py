"""Asks the database: opened once per process, answers shared for a second."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import streamlit as st

from exgrpo.app import settings
from exgrpo.app.settings import AppSettings
from exgrpo.db.connections.opening import open_database
from exgrpo.db.connections.session import UNAVAILABLE_ERRORS, Database, DatabaseError, file_inode
from exgrpo_core.errors import UserError, first_line

ANSWER_SECONDS, KEPT_SECONDS = 1.0, 600.0

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
Row = TypeVar("Row")


class UnavailableError(UserError):
    """The database does not answer; one sentence why, and what to do."""


def ask(
    query: Callable[Concatenate[Database, Arguments], Answer], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Answer:
    """Return the answer of a query; different arguments must have different texts.

    Raises:
        UnavailableError: The database does not answer.
    """
    current = settings.current()
    # One text is the key: Streamlit takes milliseconds to hash a filter with its twenty fields.
    question = repr((current, query.__module__, query.__qualname__, arguments, options))
    return _answer(question, lambda: _read(current, lambda database: query(database, *arguments, **options)))


def ask_outside_pages(
    query: Callable[Concatenate[Database, Arguments], Answer], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Answer:
    """Return the answer of a query for a request of no page.

    Raises:
        UnavailableError: The database does not answer.
    """
    return _read(settings.current(), lambda database: query(database, *arguments, **options))


def kept(function: Callable[..., Answer], *arguments: object, until: object = None) -> Answer:
    """Return what a function gives for these arguments: for ten minutes the same, unless `until` changes.

    Different arguments must have different texts.
    """
    question = repr((settings.current(), function.__module__, function.__qualname__, arguments, until))
    return _kept(question, lambda: function(*arguments))


def ask_pages(ask_page: Callable[[Row | None], list[Row]], page_size: int, num_pages: int) -> list[Row]:
    """Return the rows of the first pages; `ask_page` gets the last row before its page, None for the first page."""
    rows: list[Row] = []
    for _ in range(num_pages):
        page = ask_page(rows[-1] if rows else None)
        rows += page
        if len(page) < page_size:
            break
    return rows


@st.cache_data(ttl=ANSWER_SECONDS, show_spinner=False, max_entries=500)
def _answer(
    question: str,  # noqa: ARG001 - the cache's key, which ignores names with an underscore first
    _reading: Callable[[], Answer],
) -> Answer:
    return _reading()


@st.cache_data(ttl=KEPT_SECONDS, show_spinner=False, max_entries=200)
def _kept(
    question: str,  # noqa: ARG001 - the cache's key, likewise
    _reading: Callable[[], Answer],
) -> Answer:
    return _reading()


def _read(current: AppSettings, query: Callable[[Database], Answer]) -> Answer:
    try:
        # Another file in its place is another database: `exgrpo db rebuild` may have made it.
        return query(_database(f"{current} {file_inode(current.database_url, current.runs_root)}", current))
    except UNAVAILABLE_ERRORS as error:
        _database.clear()  # a broken connection may not recover by itself
        remedy = "Start it" if current.database_url else "Run `exgrpo db rebuild`, which makes it from the runs"
        sentence = str(error) if isinstance(error, DatabaseError) else f"{first_line(error)} {remedy}."
        raise UnavailableError(sentence) from error


@st.cache_resource(show_spinner=False, on_release=Database.close, max_entries=1)
def _database(
    settings_text: str,  # noqa: ARG001 - the cache's key
    _settings: AppSettings,
) -> Database:
    return open_database(_settings.database_url, _settings.runs_root)
