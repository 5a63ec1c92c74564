import json
import os
import tarfile
from contextlib import closing
from pathlib import Path

import pytest

from exgrpo.db.connections.opening import open_database
from exgrpo.jobs.actions import backup, run_actions
from exgrpo.jobs.actions.archive import ArchiveError
from exgrpo.jobs.actions.backup import back_up, restore
from exgrpo.jobs.execution.supervisor.indexing import ingest_all
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo.jobs.runs.journal import Journal
from exgrpo_core.bounded_json import seal
from exgrpo_core.recording.run_status import RunStatus
from tests.db.table_contents import contents
from tests.jobs.execution.supervisor.toy_bench import Bench, toy_spec

pytestmark = pytest.mark.slow

BOOKKEEPING = {"ingest_positions"}


def shown(runs_root, url=None) -> dict[str, list]:
    with closing(open_database(url, runs_root)) as database:
        return {name: rows for name, rows in contents(database).items() if name not in BOOKKEEPING}


@pytest.fixture
def used(bench: Bench) -> str:
    """A run that ended, with a tag and a note, on a bench whose supervisor was closed."""
    bench.start()
    run_id = bench.submit(toy_spec(6, checkpoint_interval=2))
    bench.look_until(run_id, RunStatus.FINISHED)
    run_actions.tag(bench.runs_root, run_id, "kept")
    run_actions.note(bench.runs_root, run_id, "A note.")
    bench.supervisor.poll()
    bench.supervisor.close()
    bench.supervisor = None
    return run_id


@pytest.fixture
def small(bench: Bench) -> Path:
    bench.submit(toy_spec())
    return bench.runs_root


def test_a_restored_workbench_holds_the_same_runs_journal_and_database(bench, used, tmp_path):
    (bench.runs_root / used / "outside").symlink_to("/etc/hostname")
    ingest_all(bench.runs_root, None)
    before = shown(bench.runs_root)
    os.link(bench.runs_root / used / "spec.json", bench.runs_root / used / "linked.json")
    assert back_up(bench.runs_root, tmp_path / "runs.tar") == {}
    again = tmp_path / "again"
    assert restore(tmp_path / "runs.tar", again) == 1
    assert ingest_all(again, None)
    assert shown(again) == before
    assert Journal(again).entries() == Journal(bench.runs_root).entries()
    for path in (bench.runs_root / used).rglob("*"):
        if path.is_file() and path.name not in ("lock", "outside"):
            assert (again / path.relative_to(bench.runs_root)).read_bytes() == path.read_bytes()
    with tarfile.open(tmp_path / "runs.tar") as archive:
        names = archive.getnames()
        assert all(member.isreg() or member.isdir() or member.islnk() for member in archive.getmembers())
    assert not [name for name in names if name.endswith(("/lock", "supervisor.json", "outside", ".db", "-wal"))]
    checkpoints = [names.index(name) for name in names if name.startswith(f"{used}/checkpoints/")]
    others = [names.index(name) for name in names if name.startswith(used) and "/checkpoints" not in name]
    assert max(checkpoints) < min(others)
    assert max(others) < names.index("workbench/journal.jsonl")
    run_actions.tag(again, used, "later")
    assert ingest_all(again, None)
    assert len(shown(again)["tags"]) == len(before["tags"]) + 1


def test_a_run_backed_up_while_it_trains_goes_on_from_the_copy(bench, tmp_path):
    bench.start()
    run_id = bench.submit(toy_spec(400, checkpoint_interval=1))
    bench.look_until(run_id, RunStatus.RUNNING)
    for number in range(2):
        bench.wait_for_step(run_id, 8 * (number + 1))
        bench.supervisor.poll()
        back_up(bench.runs_root, tmp_path / f"{number}.tar")
    run_actions.stop(bench.runs_root, run_id)
    bench.look_until(run_id, RunStatus.STOPPED)
    for number in range(2):
        copy = Bench(tmp_path / f"copy-{number}")
        restore(tmp_path / f"{number}.tar", copy.runs_root)
        copy.start()
        try:
            copy.look_until(run_id, RunStatus.LOST)
            run = RunDirectory(copy.runs_root / run_id)
            run.info_path.write_bytes(seal(json.dumps(run.read_run_info()).encode()))
            spec = run.spec_path
            end = max(row[1] for row in shown(copy.runs_root)["steps"]) + 20
            spec.write_text(spec.read_text().replace('"num_steps": 400', f'"num_steps": {end}'))
            run_actions.resume(copy.runs_root, run_id)
            copy.look_until(run_id, RunStatus.FINISHED)
            copy.supervisor.poll()
        finally:
            copy.supervisor.close()
        steps = {row[1] for row in shown(copy.runs_root)["steps"]}
        assert len(steps) == end


def test_a_file_whose_inode_was_another_files_is_no_link_to_that_one(small, tmp_path, monkeypatch):
    pruned, newer = small / "workbench" / "a" / "model", small / "workbench" / "b" / "model"
    for path in (pruned, newer):
        path.parent.mkdir()
    pruned.write_text("weights")
    add = backup._add

    def prune_once_added(*given):
        add(*given)
        if pruned in given and pruned.exists():
            pruned.write_text("newer weights")  # the same inode, as the file system may give it to a newer file
            os.link(pruned, newer)
            os.link(pruned, newer.with_name("model-of-an-evaluation"))
            pruned.unlink()

    monkeypatch.setattr(backup, "_add", prune_once_added)
    back_up(small, tmp_path / "runs.tar")
    with tarfile.open(tmp_path / "runs.tar") as archive:
        assert archive.extractfile("workbench/a/model").read() == b"weights"
        assert archive.extractfile("workbench/b/model").read() == b"newer weights"
        assert archive.getmember("workbench/b/model-of-an-evaluation").linkname == "workbench/b/model"


@pytest.mark.parametrize("place", ["there.tar", "runs/in.tar", "no/x"])
def test_a_bad_target_is_named(small, tmp_path, place):
    (tmp_path / "there.tar").write_text("mine")
    target = small / "in.tar" if place == "runs/in.tar" else tmp_path / place
    with pytest.raises(ArchiveError, match=str(target)):
        back_up(small, target)
    assert (tmp_path / "there.tar").read_text() == "mine"


def test_a_backup_and_its_name_are_on_the_disk_and_nothing_is_restored_over_runs(small, tmp_path, synced):
    back_up(small, tmp_path / "runs.tar")
    assert synced == [tmp_path / "runs.tar.tmp", tmp_path]
    with pytest.raises(ArchiveError, match=str(small)):
        restore(tmp_path / "runs.tar", small)


def test_a_backup_cut_anywhere_or_with_a_damaged_header_restores_nothing(small, tmp_path):
    back_up(small, tmp_path / "runs.tar")
    content = (tmp_path / "runs.tar").read_bytes()
    with tarfile.open(tmp_path / "runs.tar") as archive:
        places = [member.offset for member in archive.getmembers()]
    assert len(places) > 5
    # An octal digit of the second and of the last member's size.
    damaged = [content[: item + 130] + b"9" + content[item + 131 :] for item in (places[1], places[-1])]
    for spoiled in [*(content[:entry] for entry in [*places, len(content) // 2]), *damaged]:
        (tmp_path / "spoiled.tar").write_bytes(spoiled)
        with pytest.raises(ArchiveError, match=r"spoiled\.tar"):
            restore(tmp_path / "spoiled.tar", tmp_path / "again")
        assert not (tmp_path / "again").exists()
    assert not list(tmp_path.glob(".restoring-*"))


def test_a_file_of_another_user_is_left_out_and_one_that_fails_is_named_instead_of_the_target(
    small, tmp_path, monkeypatch
):
    log = small / "workbench" / "of-another.log"
    log.write_text("x")
    add, errors = (backup._add, [OSError(5, "Input/output error", str(log)), PermissionError(13, "Denied", str(log))])

    def refuse(archive, stored, path, name):
        if path == log:
            raise errors.pop(0)
        add(archive, stored, path, name)

    monkeypatch.setattr(backup, "_add", refuse)
    with pytest.raises(ArchiveError, match=log.name):
        back_up(small, tmp_path / "runs.tar")
    assert back_up(small, tmp_path / "runs.tar") == {log: "Denied"}
