"""Asks the database: opened once a process, answers shared for a second; while it is away, the last good ones."""

from collections.abc import Callable, Hashable
from typing import TypeVar

import streamlit as st

from app import settings
from app.queries import last_answers
from app.settings import AppSettings
from db.connections.opening import open_database
from db.connections.session import AWAY_ERRORS, Database

ANSWER_SECONDS = 1.0

Answer = TypeVar("Answer")


def ask(query: Callable[..., Answer], *arguments: Hashable) -> Answer:
    """Return what a query of the query layer answers.

    Raises:
        NoAnswerError: The database is away and never answered this in this session.
    """
    place = settings.current()
    # One text is the key: Streamlit takes milliseconds to digest a filter with its twenty fields.
    question = repr((place, query.__module__, query.__qualname__, arguments))
    return last_answers.ask(question, lambda: _answer(question, lambda: _read(place, query, arguments)), AWAY_ERRORS)


@st.cache_data(ttl=ANSWER_SECONDS, show_spinner=False, max_entries=500)
def _answer(
    question: str,  # noqa: ARG001 - the cache's key, which leaves out what begins with an underscore
    _reading: Callable[[], Answer],
) -> Answer:
    return _reading()


def _read(place: AppSettings, query: Callable[..., Answer], arguments: tuple[object, ...]) -> Answer:
    database = _database(str(place), place)
    try:
        return query(database, *arguments)
    except AWAY_ERRORS:
        _database.clear()  # a connection that went bad may not come back by itself
        database.close()
        raise


@st.cache_resource(show_spinner=False)
def _database(
    place: str,  # noqa: ARG001 - the cache's key
    _place: AppSettings,
) -> Database:
    return open_database(_place.database_url, _place.runs_root)
