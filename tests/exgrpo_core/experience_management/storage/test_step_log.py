"""A snapshot and the steps committed after it give the newest state, bit for bit."""

import os
import shutil
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from exgrpo_core.experience_management.replay_buffer import ReplayBuffer
from exgrpo_core.experience_management.storage.snapshot import read_snapshot
from exgrpo_core.experience_management.storage.step_log import StepLog, steps_after
from tests.exgrpo_core.experience_management.buffers import (
    NUM_QUESTIONS,
    K,
    bookkeeping,
    empty_buffer,
    success,
    take_steps,
)

SNAPSHOT = "buffer.snapshot"


def index_of(buffer, path):
    """Everything that a snapshot of the buffer holds, but which files its rows are in."""
    buffer.snapshot(path)
    header, columns = read_snapshot(path)
    numbers = {name: header[name] for name in ("num_questions", "num_trajectories")}
    return numbers | {name: column.tobytes() for name, column in columns.items()}


def steps_of(buffer):
    return [step.header["step"] for step in buffer.later.steps]


@pytest.fixture
def killed(tmp_path):
    """A buffer that committed steps 1 to 9 with a snapshot after step 4, and was never closed."""
    buffer = empty_buffer(tmp_path / "segments")
    take_steps(buffer, np.random.default_rng(0), 1, 4)
    buffer.seal()
    buffer.snapshot(tmp_path / SNAPSHOT)
    take_steps(buffer, np.random.default_rng(1), 5, 5)
    buffer.commit({"step": 10}).result()
    return buffer


def test_committed_steps_are_restored_exactly_and_continue_like_the_buffer_that_made_them(killed, tmp_path):
    shutil.copytree(tmp_path / "segments", tmp_path / "copy")
    restored = ReplayBuffer.restore(tmp_path / "copy", tmp_path / SNAPSHOT, keeps_later=True)
    assert steps_of(restored) == [5, 6, 7, 8, 9, 10]
    assert bookkeeping(restored) == bookkeeping(killed)
    assert index_of(restored, tmp_path / "a") == index_of(killed, tmp_path / "b")
    assert take_steps(restored, np.random.default_rng(2), 11, 6) == take_steps(killed, np.random.default_rng(2), 11, 6)


@pytest.mark.usefixtures("killed")
def test_without_them_the_buffer_is_as_in_the_snapshot_and_knows_what_it_left_out(tmp_path):
    restored = ReplayBuffer.restore(tmp_path / "segments", tmp_path / SNAPSHOT)
    assert steps_of(restored) == [5, 6, 7, 8, 9, 10]
    whole = empty_buffer(tmp_path / "whole")
    take_steps(whole, np.random.default_rng(0), 1, 4)
    assert bookkeeping(restored) == bookkeeping(whole)


def test_before_the_first_snapshot_all_steps_can_be_restored(killed, tmp_path):
    restored = ReplayBuffer.open(tmp_path / "segments", NUM_QUESTIONS, K, keeps_later=True)
    assert steps_of(restored) == [*range(1, 11)]
    assert index_of(restored, tmp_path / "a") == index_of(killed, tmp_path / "b")


@pytest.mark.usefixtures("killed")
def test_steps_that_an_attempt_left_out_do_not_come_back(tmp_path):
    second = ReplayBuffer.restore(tmp_path / "segments", tmp_path / SNAPSHOT)
    take_steps(second, np.random.default_rng(7), 5, 2)
    second.commit({"step": 7}).result()
    third = ReplayBuffer.restore(tmp_path / "segments", tmp_path / SNAPSHOT, keeps_later=True)
    assert steps_of(third) == [5, 6, 7]
    assert index_of(third, tmp_path / "a") == index_of(second, tmp_path / "b")


@pytest.mark.usefixtures("killed")
def test_steps_of_a_branch_are_restored_although_the_log_of_its_parent_is_not_there(tmp_path):
    branch = tmp_path / "branch"
    shutil.copytree(tmp_path / "segments", branch, ignore=shutil.ignore_patterns("*.log"))
    for first in (5, 7):
        buffer = ReplayBuffer.restore(branch, tmp_path / SNAPSHOT, keeps_later=True)
        assert steps_of(buffer) == [*range(5, first)]
        take_steps(buffer, np.random.default_rng(first), first, 1)
        buffer.commit({"step": first + 1}).result()
    restored = ReplayBuffer.restore(branch, tmp_path / SNAPSHOT, keeps_later=True)
    assert steps_of(restored) == [5, 6, 7, 8]
    assert bookkeeping(restored) == bookkeeping(buffer)


@pytest.mark.usefixtures("killed")
def test_a_log_cut_or_changed_anywhere_ends_there(tmp_path):
    (log,) = (tmp_path / "segments").glob("steps-*.log")
    whole, rng, seen = log.read_bytes(), np.random.default_rng(3), set()
    cut = [whole[:length] for length in range(len(whole), 0, -max(1, len(whole) // 100))]
    places = rng.integers(0, len(whole), 40).tolist()
    changed = [whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :] for place in places]
    for content in cut + changed:
        log.write_bytes(content)
        restored = ReplayBuffer.restore(tmp_path / "segments", tmp_path / SNAPSHOT, keeps_later=True)
        assert steps_of(restored) == [*range(5, 11)][: len(steps_of(restored))]
        seen.add(len(steps_of(restored)))
        restored.close()
    assert seen == {*range(7)}


@pytest.mark.usefixtures("killed")
def test_steps_whose_rows_are_damaged_are_left_out_with_those_after_them(tmp_path):
    rows = sorted((tmp_path / "segments").glob("*.rows"))[-1]
    os.truncate(rows, rows.stat().st_size * 2 // 3)
    restored = ReplayBuffer.restore(tmp_path / "segments", tmp_path / SNAPSHOT, keeps_later=True)
    assert 0 < len(steps_of(restored)) < 6
    assert restored.experiences(np.arange(1)).pop().token_ids.size > 0


def test_a_step_is_not_logged_if_its_rows_could_not_be_written(tmp_path, monkeypatch):
    buffer = empty_buffer(tmp_path / "segments")
    buffer.insert([success(1, [1, 2])])
    buffer.commit({"step": 1}).result()

    def full(*_arguments):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)
    buffer.insert([success(2, [1, 2])])
    with pytest.raises(OSError, match="No space"):
        buffer.commit({"step": 2}).result()
    monkeypatch.undo()
    assert steps_of(ReplayBuffer.open(tmp_path / "segments", NUM_QUESTIONS, K, keeps_later=True)) == [1]


def test_a_long_log_is_read_with_one_step_in_memory(tmp_path):
    num_steps, numbers = 24, np.arange(1 << 18, dtype=np.int32)
    with ThreadPoolExecutor(1) as writer:
        log = StepLog(tmp_path, writer)
        for step in range(num_steps):
            log.append({"step": step}, {"moves": numbers + step}, []).result()
        log.close()
    tracemalloc.start()
    try:
        read = [int(step.read_columns()["moves"][0]) for step in steps_after(tmp_path, None)]
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read == [*range(num_steps)]
    assert most < 6 * numbers.nbytes < sum(path.stat().st_size for path in tmp_path.iterdir()) / 3
