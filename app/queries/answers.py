"""Asks the database: opened once per process, answers shared for a second, the last ones while it is unavailable."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

import streamlit as st

from app import settings
from app.queries import last_answers
from app.settings import AppSettings
from db.connections.opening import open_database
from db.connections.session import UNAVAILABLE_ERRORS, Database

ANSWER_SECONDS = 1.0

Answer = TypeVar("Answer")
Arguments = ParamSpec("Arguments")
Row = TypeVar("Row")


def ask(
    query: Callable[Concatenate[Database, Arguments], Answer], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Answer:
    """Return the answer of a query; different arguments must have different texts.

    Raises:
        NoAnswerError: The database is unavailable and never answered this in this session.
    """
    current = settings.current()
    # One text is the key: Streamlit takes milliseconds to hash a filter with its twenty fields.
    question = repr((current, query.__module__, query.__qualname__, arguments, options))
    return last_answers.ask(
        question,
        lambda: _answer(question, lambda: _read(current, lambda database: query(database, *arguments, **options))),
        UNAVAILABLE_ERRORS,
    )


def ask_outside_pages(
    query: Callable[Concatenate[Database, Arguments], Answer], *arguments: Arguments.args, **options: Arguments.kwargs
) -> Answer | None:
    """Return the answer of a query for a request that belongs to no page; None while the database is unavailable."""
    try:
        return _read(settings.current(), lambda database: query(database, *arguments, **options))
    except UNAVAILABLE_ERRORS:
        return None


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


def _read(current: AppSettings, query: Callable[[Database], Answer]) -> Answer:
    database = _database(str(current), current)
    try:
        return query(database)
    except UNAVAILABLE_ERRORS:
        _database.clear()  # a broken connection may not recover by itself
        raise


@st.cache_resource(show_spinner=False, on_release=Database.close)
def _database(
    settings_text: str,  # noqa: ARG001 - the cache's key
    _settings: AppSettings,
) -> Database:
    return open_database(_settings.database_url, _settings.runs_root)
