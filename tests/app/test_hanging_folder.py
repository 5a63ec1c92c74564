"""Pages answer while the folder of a run is on a file system that hangs."""

import pytest

from app.page_list import PAGES
from db.connections.opening import open_database
from exgrpo_core.hanging_files import ANSWER_SECONDS
from tests.app import judged, web_server
from tests.app.page_session import page_session
from tests.hanging import hanging

pytestmark = pytest.mark.slow

HUNG = "thoughts-running"
RUN_VIEWS = ("Curves", "Replay buffer", "Log", "Configuration", "Attempts", "Playground")


def test_every_page_answers_while_a_runs_folder_hangs(tmp_path, monkeypatch):
    root = tmp_path / "runs"
    root.mkdir()
    database = open_database(None, root)
    for run_id, status in judged.STATES.items():
        judged.make_run(database, root, run_id, status, 2)
    database.close()
    monkeypatch.setattr("tests.app.page_session.ANSWER_SECONDS", 12 * ANSWER_SECONDS)
    with hanging(root / HUNG):
        workbench = web_server.start(root)
        try:
            with page_session(workbench) as session:
                for page in PAGES:
                    for query in ({}, {"run": HUNG}):
                        assert session.open("" if page is PAGES[0] else page.name, **query) == []
                for view in RUN_VIEWS:
                    assert session.open("run", run=HUNG, view=view) == []
        finally:
            workbench.stop()
