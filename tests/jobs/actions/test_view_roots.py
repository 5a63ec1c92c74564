import os
from pathlib import Path

import pytest

from exgrpo.jobs.actions.view_roots import CacheError, cache_folder, link_runs, open_view_root, prune
from exgrpo.jobs.runs.directory import RunDirectory, RunDirectoryError, list_run_directories
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.recording.attempt_gate import FileLock


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return cache_folder()


def test_the_same_paths_and_format_have_the_same_root_and_others_another(cache):
    root = open_view_root([Path("/a"), Path("/b")])
    assert root == open_view_root([Path("/b"), Path("/a")])
    assert len({root, open_view_root([Path("/a")]), open_view_root([Path("/a"), Path("/b")], "prompt: $.q")}) == 3
    assert root.parent == cache


def test_views_opened_longest_ago_are_removed_for_space_but_not_an_open_one_nor_the_one_asked_for():
    roots = [open_view_root([Path(f"/{number}")]) for number in range(4)]
    for number, root in enumerate(roots):
        (root / "data").write_bytes(bytes(100))
        os.utime(root, (number, number))
    lock = FileLock(roots[0] / "workbench" / "workbench.lock")
    assert lock.acquire()
    prune(roots[1], max_bytes=150)
    assert [root.exists() for root in roots] == [True, True, False, True]
    lock.release()
    prune(roots[1], max_bytes=0)
    assert [root.exists() for root in roots] == [False, True, False, False]


def test_run_folders_are_shown_where_they_lie_in_a_view_and_links_stay_refused_elsewhere(tmp_path):
    run = RunDirectory.create(tmp_path / "runs", TrainSpec())
    before = {path: path.stat().st_mtime_ns for path in run.path.rglob("*")}
    root = open_view_root([run.path])
    link_runs(root, [run.path])
    link_runs(root, [run.path])
    assert [found.run_id for found in list_run_directories(root)] == [run.run_id]
    assert RunDirectory.open(root, run.run_id).spec() == TrainSpec()
    assert {path: path.stat().st_mtime_ns for path in run.path.rglob("*")} == before
    other = tmp_path / "other"
    other.mkdir()
    (other / run.run_id).symlink_to(run.path)
    with pytest.raises(RunDirectoryError):
        RunDirectory.open(other, run.run_id)


def test_run_folders_of_one_name_are_shown_side_by_side_also_by_a_later_view(tmp_path):
    runs = [RunDirectory.create(tmp_path / name, TrainSpec(name=name), run_id="grpo").path for name in ("a", "b")]
    root = open_view_root(runs)
    for order in (runs, runs[::-1]):
        link_runs(root, order)
    found = {run.run_id: run.read_run_info() for run in list_run_directories(root)}
    assert {run_id: (info["run_id"], info["name"]) for run_id, info in found.items()} == {
        "grpo": ("grpo", "a"),
        "grpo-2": ("grpo-2", "b"),
    }


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CacheError) as refused:
        open_view_root([Path("/a")])
    assert str(tmp_path / "file") in str(refused.value)
