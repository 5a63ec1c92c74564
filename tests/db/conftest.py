"""Databases of both kinds: each test that asks for `database` runs on SQLite and on a real PostgreSQL server."""

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine, make_url

from db.session import Database, open_database
from tests.postgres import running_server

_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    with running_server() as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """URL of a database that is empty."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    server = make_url(request.getfixturevalue("postgres_server")).set(drivername="postgresql+psycopg")
    name = f"test_{next(_NUMBERS)}"
    engine = create_engine(server, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.exec_driver_sql(f"CREATE DATABASE {name}")
    engine.dispose()
    return server.set(database=name, drivername="postgresql").render_as_string(hide_password=False)


@pytest.fixture
def database(database_url: str, tmp_path: Path) -> Iterator[Database]:
    opened = open_database(database_url, tmp_path)
    yield opened
    opened.close()
