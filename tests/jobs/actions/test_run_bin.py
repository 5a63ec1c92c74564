import pytest

from db.queries import runs
from db.queries.run_filter import RunFilter
from jobs.actions import run_actions, run_bin
from jobs.runs.journal import Journal, JournalKind
from jobs.runs.lookup import CommandError, find_run_id
from jobs.supervisor.reading import open_fresh_index
from tests.app import recorded


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


@pytest.mark.parametrize("run_id", ["run-queued"])
def test_a_run_that_has_not_ended_is_not_deleted(runs_root, run_id):
    with pytest.raises(CommandError, match="cannot be deleted: it is queued; stop it first"):
        run_bin.delete(runs_root, run_id)
    assert (runs_root / run_id / "run.json").is_file()


def test_emptying_the_bin_removes_folders_and_the_journal_says_which(runs_root):
    run_bin.delete(runs_root, "run-finished")
    assert run_bin.empty(runs_root) == 1
    assert run_bin.list_deleted(runs_root) == {}
    kinds = [entry.kind for entry in Journal(runs_root).entries() if entry.run_id == "run-finished"]
    assert kinds == [JournalKind.DELETED, JournalKind.REMOVED]
    with pytest.raises(CommandError, match="is not in the bin"):
        run_bin.restore(runs_root, "run-finished")


@pytest.mark.parametrize("run_id", ["../run-queued", "workbench", "a/b"])
def test_no_name_leads_out_of_the_bin(runs_root, run_id):
    with pytest.raises(CommandError, match="expected letters, digits"):
        run_bin.restore(runs_root, run_id)


def test_a_renamed_run_is_found_by_its_new_name_and_keeps_it_when_the_database_is_rebuilt(runs_root):
    run_actions.rename(runs_root, "run-finished", "better name")
    assert find_run_id(runs_root, "better name") == "run-finished"
    assert listed(runs_root)["run-finished"].name == "better name"
    with pytest.raises(CommandError, match="name: expected letters"):
        run_actions.rename(runs_root, "run-finished", "<b>")
