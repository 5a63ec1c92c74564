"""Row 3: checkpoints cut, flipped, emptied or taken away are noticed and named, and the one before is used."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from exgrpo.jobs.runs.checkpoints import checkpoint_path
from exgrpo.jobs.runs.directory import RunDirectory
from exgrpo_core.recording.run_status import RunStatus
from tests.faults import recorded
from tests.faults.small_training import small_spec, train

pytestmark = pytest.mark.fault_row(3)

NUM_STEPS = 12
NEWEST, PREVIOUS = 12, 9
NUM_CUTS, NUM_FLIPS = 20, 50


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    run = RunDirectory.create(tmp_path_factory.mktemp("runs"), small_spec(NUM_STEPS))
    assert train(run) is RunStatus.FINISHED
    return run


@pytest.fixture
def copies(finished, tmp_path):
    def make():
        target = tmp_path / finished.run_id
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(finished.path, target)
        return RunDirectory(target)

    return make


def places(length, count):
    """Return `count` different offsets inside a file, first and last byte among them, or all where it is shorter."""
    return sorted({int(item) for item in np.linspace(0, length - 1, min(count, length))})


def cut_at(offset):
    def cut(path):
        path.write_bytes(path.read_bytes()[:offset])

    return cut


def flip_at(offset, mask):
    def flip(path):
        content = bytearray(path.read_bytes())
        content[offset] ^= mask
        path.write_bytes(bytes(content))

    return flip


def damages(path, is_long):
    """Return every damage of the criterion for a file, or some of each kind."""
    size, share = path.stat().st_size, 1 if is_long else 20
    cuts = [(f"cut at {offset}", cut_at(offset)) for offset in places(size, NUM_CUTS)[::share]]
    masks = (0x01, 0x10, 0xFF)
    flips = [
        (f"flipped at {offset}", flip_at(offset, masks[i % 3]))
        for i, offset in enumerate(places(size, NUM_FLIPS)[::share])
    ]
    return [*cuts, *flips, ("empty", cut_at(0)), ("missing", Path.unlink)]


def files_of_newest(run):
    folder = checkpoint_path(run.checkpoints_path, NEWEST)
    return sorted(path.relative_to(run.path) for path in folder.rglob("*") if path.is_file())


def test_a_damaged_file_is_named_and_the_previous_checkpoint_used(finished, copies, is_long, figure, caplog):
    caplog.set_level("INFO")
    num_damaged = 0
    segments = sorted(finished.buffer_path.glob("segment-*"))[-2:]
    for name in [*files_of_newest(finished), *(path.relative_to(finished.path) for path in segments)]:
        for how, damage in damages(finished.path / name, is_long):
            if name.suffix == ".trajectories" and how.startswith("flipped"):
                continue  # found when the trajectory is used, since reading gigabytes at each start would be slow
            run = copies()
            damage(run.path / name)
            caplog.clear()
            assert train(run) is RunStatus.FINISHED
            num_damaged += 1
            assert f"resuming from step {PREVIOUS}" in caplog.text, f"{name} {how}"
            assert f"{name}: " in caplog.text, f"{name} {how}"
            recorded.assert_same_end(run, finished)
    figure("damaged files noticed, named and passed over", f"{num_damaged} of {num_damaged}")


def test_folders_beside_the_checkpoints_are_not_taken_for_checkpoints(copies):
    run = copies()
    newest = checkpoint_path(run.checkpoints_path, NEWEST)
    for name in (f"{newest.name}-copy", f"{newest.name}.bak", "step-new"):
        shutil.copytree(newest, newest.with_name(name))
    newest.rename(checkpoint_path(run.checkpoints_path, NEWEST + 1))
    assert train(run) is RunStatus.FINISHED
    assert newest.with_name(f"{newest.name}-copy").is_dir()
    assert newest.is_dir()
