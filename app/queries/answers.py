"""Asks the database: opened once a process, answers shared for a second; while it is away, the last good ones."""

from collections.abc import Callable, Hashable
from typing import TypeVar

import streamlit as st

from app import last_answers, settings
from app.settings import AppSettings
from db.session import AWAY_ERRORS, Database, open_database

ANSWER_SECONDS = 1.0

Answer = TypeVar("Answer")


def ask(query: Callable[..., Answer], *arguments: Hashable) -> Answer:
    """Return what a query of the query layer answers.

    Raises:
        NoAnswerError: The database is away and never answered this in this session.
    """
    place, name = settings.current(), f"{query.__module__}.{query.__qualname__}"
    return last_answers.ask((place, name, arguments), lambda: _answer(place, name, arguments, query), AWAY_ERRORS)


@st.cache_data(ttl=ANSWER_SECONDS, show_spinner=False, max_entries=500)
def _answer(
    place: AppSettings,
    name: str,  # noqa: ARG001 - part of the cache key, which leaves functions out
    arguments: tuple[object, ...],
    _query: Callable[..., Answer],
) -> Answer:
    try:
        return _query(_database(place), *arguments)
    except AWAY_ERRORS:
        _database.clear()  # a connection that went bad may not come back by itself
        raise


@st.cache_resource(show_spinner=False)
def _database(place: AppSettings) -> Database:
    return open_database(place.database_url, place.runs_root)
