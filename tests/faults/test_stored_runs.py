"""A run and its database as an older program left them: nothing that users keep has changed its form since.

`stored_runs/schema-0010.tar.gz` is a whole runs root of one small run, older than the layout of packages.
"""

import json
import shutil
import tarfile
from pathlib import Path

import pytest

from db.connections.opening import open_database
from jobs.actions import run_actions
from jobs.runs.directory import RunDirectory, list_run_directories
from jobs.runs.status import RunStatus
from jobs.supervisor.indexing import DatabaseIndex
from jobs.supervisor.loop import Supervisor
from tests.db.table_contents import contents
from tests.jobs.cli.invoked import exgrpo
from tests.jobs.supervisor.toy_bench import wait_until

STORED = Path(__file__).parent / "stored_runs" / "schema-0010.tar.gz"


@pytest.fixture
def runs_root(tmp_path: Path) -> Path:
    with tarfile.open(STORED) as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "runs"


def test_a_stored_run_is_shown_with_its_numbers(runs_root):
    [run] = list_run_directories(runs_root)
    events = [json.loads(line) for line in next(run.attempt_path(1).glob("events-*.jsonl")).read_text().splitlines()]
    losses = [event["metrics"]["loss/total"] for event in events if event["kind"] == "step"]
    printed = json.loads(exgrpo(runs_root, "show", run.run_id, "--json"))
    assert (printed["run"]["status"], printed["run"]["step"], printed["run"]["tags"]) == ("succeeded", 6, ["kept"])
    assert [checkpoint["step"] for checkpoint in printed["checkpoints"]] == [4, 6]
    curves = json.loads(exgrpo(runs_root, "curves", run.run_id, "--metric", "loss/total"))
    assert [value for _, value in curves[run.run_id]["metrics"]["loss/total"]] == losses
    assert len(losses) == 6
    assert run.spec().algorithm.rollouts_per_question == 4


def without_event_numbers(tables):
    """Positions as the stored database has them, attempt and byte; the number of the event came later."""

    def shortened(text):
        position = json.loads(text)
        return {name: numbers[:2] for name, numbers in position.items()} if isinstance(position, dict) else position

    return tables | {"ingest_positions": [(name, shortened(text)) for name, text in tables["ingest_positions"]]}


def test_a_stored_database_holds_what_is_rebuilt_from_the_files(runs_root, tmp_path):
    stored = open_database(None, runs_root)
    before = without_event_numbers(contents(stored))
    stored.close()
    shutil.copytree(runs_root, tmp_path / "copy")
    (tmp_path / "copy" / "workbench" / "workbench.db").unlink()
    exgrpo(tmp_path / "copy", "db", "rebuild")
    rebuilt = open_database(None, tmp_path / "copy")
    assert without_event_numbers(contents(rebuilt)) == before
    rebuilt.close()


@pytest.mark.slow
def test_a_branch_of_a_stored_run_ends(runs_root):
    [parent] = list_run_directories(runs_root)
    branch = RunDirectory.open(runs_root, run_actions.branch(runs_root, parent.run_id, 4))
    supervisor = Supervisor(runs_root, DatabaseIndex(None, runs_root))
    try:

        def has_ended() -> bool:
            supervisor.poll()
            state = supervisor.state_of(branch.run_id)
            return state is not None and state.is_ended

        wait_until(has_ended, "the branch's end")
        state = supervisor.state_of(branch.run_id)
    finally:
        supervisor.close()
    assert state.status is RunStatus.SUCCEEDED, state.reason
    printed = json.loads(exgrpo(runs_root, "show", branch.run_id, "--json"))
    assert printed["run"]["step"] == 6
