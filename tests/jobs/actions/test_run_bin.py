import errno
import os

import pytest

from exgrpo.db.queries import runs
from exgrpo.db.queries.run_filter import RunFilter
from exgrpo.jobs.actions import run_actions, run_bin
from exgrpo.jobs.actions.queueing import queue_job
from exgrpo.jobs.execution.supervisor.indexing import open_fresh_index
from exgrpo.jobs.runs.directory import CommandError, RunDirectory
from exgrpo.jobs.runs.journal import Journal, JournalKind
from exgrpo.jobs.runs.lookup import find_run_id
from exgrpo.jobs.specs.train import TrainSpec
from tests.app import recorded

pytestmark = pytest.mark.slow


@pytest.fixture
def runs_root(tmp_path):
    recorded.record(tmp_path, recorded.FINISHED, recorded.RUNNING, recorded.QUEUED)
    return tmp_path


def listed(runs_root):
    with open_fresh_index(runs_root, None) as database:
        return {row.run_id: row for row in runs.list_runs(database, RunFilter(is_archived=None))}


def test_a_deleted_run_leaves_list_and_database_and_comes_back_whole(runs_root):
    before = listed(runs_root)["run-finished"]
    run_actions.tag(runs_root, "run-finished", "kept")
    run_bin.delete(runs_root, "run-finished")
    assert "run-finished" not in listed(runs_root)
    assert run_bin.list_deleted(runs_root) == {"run-finished": "exgrpo whole"}
    run_bin.restore(runs_root, "run-finished")
    after = listed(runs_root)["run-finished"]
    assert (after.step, after.status, after.tags) == (before.step, before.status, ("kept",))


def test_a_run_that_has_not_ended_is_not_deleted(runs_root):
    with pytest.raises(CommandError):
        run_bin.delete(runs_root, "run-queued")
    assert (runs_root / "run-queued" / "run.json").is_file()


def test_emptying_the_bin_removes_folders_and_the_journal_says_which(runs_root):
    run_bin.delete(runs_root, "run-finished")
    assert run_bin.empty(runs_root) == 1
    assert run_bin.list_deleted(runs_root) == {}
    kinds = [entry.kind for entry in Journal(runs_root).entries() if entry.run_id == "run-finished"]
    assert kinds == [JournalKind.DELETED, JournalKind.REMOVED]
    with pytest.raises(CommandError):
        run_bin.restore(runs_root, "run-finished")


def test_a_renamed_run_is_found_by_its_new_name_and_keeps_it_when_the_database_is_rebuilt(runs_root):
    run_actions.rename(runs_root, "run-finished", "better name")
    assert find_run_id(runs_root, "better name") == "run-finished"
    assert listed(runs_root)["run-finished"].name == "better name"
    with pytest.raises(CommandError):
        run_actions.rename(runs_root, "run-finished", "<b>")


def test_the_bin_has_the_name_that_a_run_was_given_last_and_a_copys_name_is_free_of_it(runs_root):
    run_actions.rename(runs_root, "run-finished", "better name")
    run_actions.rename(runs_root, "run-queued", "better name copy")
    assert run_actions.name_of_copy(runs_root, "better name") == "better name copy 2"
    run_bin.delete(runs_root, "run-finished")
    assert run_bin.list_deleted(runs_root) == {"run-finished": "better name"}


def test_a_run_that_a_queued_job_waits_for_is_not_deleted(runs_root):
    waiting = queue_job(runs_root, TrainSpec(name="after it", waits_for="run-finished"))
    with pytest.raises(CommandError):
        run_bin.delete(runs_root, "run-finished")
    run_actions.stop(runs_root, waiting)
    run_bin.delete(runs_root, "run-finished")
    assert list(run_bin.list_deleted(runs_root)) == ["run-finished"]


def test_a_damaged_folder_in_the_bin_is_listed_and_removed(runs_root):
    run_bin.delete(runs_root, "run-finished")
    damaged = runs_root / "workbench" / "bin" / "run-finished"
    (damaged / "run.json").unlink()
    assert run_bin.list_deleted(runs_root) == {"run-finished": "run-finished"}
    assert run_bin.empty(runs_root) == 1
    assert not damaged.exists()


def test_a_move_that_the_journal_cannot_record_is_undone(runs_root, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(Journal, "append", full)
        with pytest.raises(CommandError):
            run_bin.delete(runs_root, "run-finished")
    assert RunDirectory.open(runs_root, "run-finished")
    assert run_bin.list_deleted(runs_root) == {}
    run_bin.delete(runs_root, "run-finished")
    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(CommandError):
        run_bin.restore(runs_root, "run-finished")
    assert list(run_bin.list_deleted(runs_root)) == ["run-finished"]
