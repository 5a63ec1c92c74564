import signal
import threading
from contextlib import closing

import pytest
from sqlalchemy import text

from db.connections.opening import open_database
from db.connections.postgres_connections import answers
from db.connections.session import UNAVAILABLE_ERRORS, DatabaseError
from tests.jobs.supervisor.toy_bench import wait_until
from tests.postgres import controlled_server

pytestmark = pytest.mark.postgres


@pytest.fixture(scope="module")
def server():
    with controlled_server() as server:
        yield server


@pytest.fixture
def database(server, tmp_path):
    database = open_database(server.url, tmp_path)
    yield database
    database.close()


def ask(database, statement="SELECT 1"):
    with database.read() as connection:
        return connection.scalar(text(statement))


def test_a_server_that_is_frozen_is_given_up_and_answers_again_after(server, database, tmp_path):
    assert ask(database) == 1
    server.signal(signal.SIGSTOP)
    try:
        assert not answers(str(server.folder), 5432)
        with pytest.raises(UNAVAILABLE_ERRORS):
            ask(database)
        with pytest.raises(DatabaseError):
            open_database(server.url, tmp_path)
    finally:
        server.signal(signal.SIGCONT)
    wait_until(lambda: answers(str(server.folder), 5432), "the server that was not stopped")
    assert ask(database) == 1


def test_a_statement_that_is_under_way_when_the_server_freezes_is_given_up(server, database, tmp_path):
    under_way = "SELECT count(*) FROM pg_stat_activity WHERE query = 'SELECT pg_sleep(3600)' AND state = 'active'"

    def freeze():
        with closing(open_database(server.url, tmp_path)) as other:
            wait_until(lambda: ask(other, under_way) == 1, "the statement")
        server.signal(signal.SIGSTOP)

    freezing = threading.Thread(target=freeze)
    freezing.start()
    try:
        with pytest.raises(UNAVAILABLE_ERRORS):
            ask(database, "SELECT pg_sleep(3600)")
    finally:
        freezing.join()
        server.signal(signal.SIGCONT)


def test_a_server_gives_a_sign_by_address_and_none_where_nobody_listens(server, tmp_path):
    assert answers(str(server.folder), 5432)
    assert not answers(str(tmp_path), 5432)
    assert not answers("127.0.0.1", 1)
