"""Databases of both kinds: each test that asks for `database` runs on SQLite and on a real PostgreSQL server."""

import itertools
import shutil

import pytest

from exgrpo.db.connections.opening import open_database
from tests.postgres import create_postgres_database

KINDS = ("sqlite", "postgresql")
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
"""For conditions in Python, and queries that tests/db/queries/test_both_databases.py compares on both."""
_NUMBERS = itertools.count(1)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory):
    path = tmp_path_factory.mktemp("template") / "template.db"
    open_database(f"sqlite:///{path}", path.parent).close()
    return path


@pytest.fixture(scope="session")
def postgres_template(postgres_server, tmp_path_factory):
    url = create_postgres_database(postgres_server)
    open_database(url, tmp_path_factory.mktemp("template")).close()
    return url


@pytest.fixture(scope="session")
def new_database(request):
    """Opens a database of a kind with the newest schema and no rows; a file lies in the given folder."""

    def make(kind, folder):
        if kind == "sqlite":
            path = folder / f"test-{next(_NUMBERS)}.db"
            shutil.copy(request.getfixturevalue("sqlite_template"), path)
            return open_database(f"sqlite:///{path}", folder)
        server, template = request.getfixturevalue("postgres_server"), request.getfixturevalue("postgres_template")
        return open_database(create_postgres_database(server, template), folder)

    return make


@pytest.fixture(params=KINDS)
def database_url(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'test.db'}"
    return create_postgres_database(request.getfixturevalue("postgres_server"))


@pytest.fixture(params=KINDS)
def database(request, new_database, tmp_path):
    opened = new_database(request.param, tmp_path)
    yield opened
    opened.close()
