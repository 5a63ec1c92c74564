import json
import shutil

import pytest

from exgrpo.jobs.runs import checkpoints
from exgrpo.jobs.runs.checkpoints import (
    DamagedCheckpointError,
    find_fault,
    list_checkpoints,
    open_newest,
    prune_checkpoints,
    save_checkpoint,
)
from exgrpo_core.faults import Fault, FaultKind
from exgrpo_core.verl_plugin.rank_files import write_checksums


def save(folder, step, content=b"weights" * 100):
    def write(checkpoint):
        checkpoint.policy.mkdir()
        checkpoint.experience.mkdir()
        (checkpoint.policy / "model.safetensors").write_bytes(content)
        (checkpoint.experience / "experience.json").write_text("{}")

    return save_checkpoint(folder, step, write)


def test_newest_checkpoint_is_found_and_only_the_newest_are_kept(tmp_path):
    assert open_newest(tmp_path, lambda it: it.step) is None
    for step in (10, 9, 100, 8, 7):
        save(tmp_path, step)
    prune_checkpoints(tmp_path, 3, best=7)
    assert [path.name for path in list_checkpoints(tmp_path)][3:] == ["step-00000007"]
    checkpoint, step = open_newest(tmp_path, lambda it: it.step)
    assert checkpoint.step == step == 100
    prune_checkpoints(tmp_path, 2)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000100", "step-00000010"]


def test_a_checkpoint_is_on_the_disk_before_its_name(tmp_path, synced):
    path = save(tmp_path, 3).path
    inside = {file.relative_to(path) for file in [path, *path.rglob("*")]}
    hidden = {file.relative_to(synced[-2]) for file in synced[:-1]}
    assert (hidden, synced[-1]) == (inside, tmp_path)


def test_no_reader_sees_a_checkpoint_that_is_half_removed(tmp_path, monkeypatch):
    for step in (1, 2):
        save(tmp_path, step)
    seen = []
    remove = checkpoints.shutil.rmtree
    monkeypatch.setattr(
        checkpoints.shutil,
        "rmtree",
        lambda path, **options: (seen.append(list_checkpoints(tmp_path)), remove(path, **options)),
    )
    prune_checkpoints(tmp_path, 1)
    assert [[path.name for path in paths] for paths in seen] == [["step-00000002"]]
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000002"]


def test_a_checkpoint_whose_reader_finds_damage_is_passed_over(tmp_path):
    save(tmp_path, 1)
    save(tmp_path, 2)

    def read(checkpoint):
        if checkpoint.step == 2:
            raise DamagedCheckpointError("a segment is cut")
        return "content"

    checkpoint, content = open_newest(tmp_path, read)
    assert (checkpoint.step, content) == (1, "content")


def test_when_no_checkpoint_is_whole_each_fault_is_named_and_all_stay(tmp_path):
    for step in (1, 2):
        (save(tmp_path, step).policy / "model.safetensors").unlink()
    with pytest.raises(DamagedCheckpointError, match=r"00000002/policy/model.*00000001/policy/model"):
        open_newest(tmp_path, lambda it: it.step)
    assert [path.name for path in list_checkpoints(tmp_path)] == ["step-00000002", "step-00000001"]


@pytest.mark.parametrize("content", [None, "", "{", '{"files": []}', "[]"])
def test_damaged_manifest_and_missing_file_are_named(tmp_path, content):
    path = save(tmp_path, 1).path / "manifest.json"
    path.unlink() if content is None else path.write_text(content)
    fault = find_fault(path.parent)
    assert (fault.kind, fault.file) == (FaultKind.UNREADABLE, f"{tmp_path.name}/step-00000001/manifest.json")
    missing = save(tmp_path, 2).experience / "experience.json"
    missing.unlink()
    name = f"{tmp_path.name}/step-00000002/experience/experience.json"
    assert find_fault(missing.parent.parent) == Fault(FaultKind.MISSING, name)


def test_interrupted_save_leaves_no_checkpoint_and_the_next_save_is_whole(tmp_path):
    def write(checkpoint):
        checkpoint.policy.mkdir()
        (checkpoint.policy / "model.safetensors").write_bytes(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        save_checkpoint(tmp_path, 5, write)
    assert list(tmp_path.iterdir()) == []
    save(tmp_path, 5, b"old")
    save(tmp_path, 5, b"new")
    assert (tmp_path / "step-00000005" / "policy" / "model.safetensors").read_bytes() == b"new"
    assert find_fault(tmp_path / "step-00000005") is None


def test_another_save_of_the_same_step_does_not_change_an_unfinished_one(tmp_path):
    def write(checkpoint):
        save(tmp_path, 5, b"of a worker that was given up")
        (checkpoint.path / "weights").write_bytes(b"of its successor")

    path = save_checkpoint(tmp_path, 5, write).path
    assert find_fault(path) is None
    assert (path / "weights").read_bytes() == b"of its successor"
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_stays_where_the_folder_that_was_to_replace_it_is_gone(tmp_path, monkeypatch):
    save(tmp_path, 5, b"of the successor")

    def write(checkpoint):
        (checkpoint.path / "weights").write_text("late")

    monkeypatch.setattr(checkpoints, "exit_if_fenced", lambda: [shutil.rmtree(path) for path in tmp_path.glob(".*")])
    with pytest.raises(FileNotFoundError):
        save_checkpoint(tmp_path, 5, write)
    assert find_fault(tmp_path / "step-00000005") is None
    assert [path.name for path in tmp_path.iterdir()] == ["step-00000005"]


def test_a_step_damaged_twice_is_set_aside_twice(tmp_path):
    save(tmp_path, 1)
    for _ in range(2):
        (save(tmp_path, 2).policy / "model.safetensors").unlink()
        checkpoint, _ = open_newest(tmp_path, lambda it: it.step)
        assert checkpoint.step == 1
    assert sorted(path.name for path in tmp_path.glob("damaged-*")) == [
        "damaged-1-step-00000002", "damaged-2-step-00000002"
    ]  # fmt: skip


def test_a_disk_that_fails_is_not_taken_for_damage(tmp_path, monkeypatch):
    save(tmp_path, 1)

    def fail(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", fail)
    with pytest.raises(PermissionError):
        open_newest(tmp_path, lambda it: it.step)


def test_what_ranks_have_checked_is_not_read_again_to_save_nor_to_resume(tmp_path):
    def write(checkpoint):
        checkpoint.policy.mkdir()
        for rank in range(2):
            (checkpoint.policy / f"model_world_size_2_rank_{rank}.pt").write_bytes(b"weights")
        write_checksums(checkpoint.policy, 2, 0)
        # Reading rank 1's file would show that this is not its checksum.
        checksums = json.dumps({"model_world_size_2_rank_1.pt": [7, 5]})
        (checkpoint.policy / "checksums_world_size_2_rank_1.json").write_text(checksums)

    path = save_checkpoint(tmp_path, 1, write).path
    assert open_newest(tmp_path, lambda it: it.step, leaves_to_ranks=True)[1] == 1
    assert find_fault(path) == Fault(
        FaultKind.CHANGED, f"{tmp_path.name}/step-00000001/policy/model_world_size_2_rank_1.pt"
    )
    (path / "policy/model_world_size_2_rank_0.pt").write_bytes(b"cut")
    assert find_fault(path, leaves_to_ranks=True).kind is FaultKind.CHANGED
