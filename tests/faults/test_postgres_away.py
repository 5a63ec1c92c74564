"""Row 5: PostgreSQL killed again and again while it is written to: nothing is lost or doubled."""

from contextlib import closing

import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.jobs.execution.supervisor import indexing
from exgrpo.jobs.execution.supervisor.indexing import Indexer, rebuild_index
from tests.faults import used_workbench
from tests.postgres import controlled_server

pytestmark = [pytest.mark.fault_row(5), pytest.mark.postgres, pytest.mark.timeout(1500)]

NUM_MORE_RUNS = {False: 3, True: 60}
NUM_KILLS = {False: 2, True: 20}


@pytest.fixture
def server():
    with controlled_server() as server:
        yield server


def rows(runs_root, url):
    with closing(open_database(url, runs_root)) as database:
        return used_workbench.tables(database)


def test_server_killed_between_commits_loses_and_doubles_nothing(tmp_path, server, is_long, monkeypatch, figure):
    monkeypatch.setattr(indexing, "RETRY_SECONDS", 0.0)
    runs_root = tmp_path / "runs"
    used_workbench.make(runs_root, NUM_MORE_RUNS[is_long])
    num_looks = num_kills = 0
    with closing(Indexer(server.url, runs_root)) as index:
        index.poll(0.01)
        while index.is_behind or not index.is_reachable:
            if num_looks % 2 == 0 and num_kills < NUM_KILLS[is_long]:
                num_kills += 1
                server.stop()
                server.start()
            index.poll(0.01)
            num_looks += 1
        index.poll()
    rebuild_index(runs_root, None)
    assert num_kills > 0
    assert rows(runs_root, server.url) == rows(runs_root, None)
    figure("server killed while it was written to", f"{num_kills} times, the same rows")
