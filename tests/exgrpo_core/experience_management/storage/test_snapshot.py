import copy
import os
import shutil
import zlib

import numpy as np
import pytest

from exgrpo_core.experience_management.replay_buffer import BufferCorruptionError, ReplayBuffer
from exgrpo_core.experience_management.storage import append_file
from exgrpo_core.experience_management.storage.snapshot import _LENGTH, _START, MAGIC, read_snapshot
from tests.exgrpo_core.experience_management.buffers import NUM_QUESTIONS, empty_buffer, success, take_steps

SNAPSHOT = "buffer.snapshot"


def files_of(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir())}


@pytest.fixture
def saved(tmp_path):
    """A buffer of ten steps with its snapshot, sealed half way."""
    segments = tmp_path / "segments"
    buffer = empty_buffer(segments)
    take_steps(buffer, np.random.default_rng(0), 1, 5)
    buffer.seal()
    take_steps(buffer, np.random.default_rng(1), 6, 5)
    buffer.snapshot(tmp_path / SNAPSHOT)
    return buffer, segments, tmp_path / SNAPSHOT


@pytest.mark.parametrize("num_steps", [0, 7])
@pytest.mark.parametrize("is_sealed", [True, False])
def test_restored_buffer_goes_on_exactly_like_the_one_that_was_saved(tmp_path, num_steps, is_sealed):
    segments = tmp_path / "segments"
    buffer = empty_buffer(segments)
    take_steps(buffer, np.random.default_rng(0), 1, num_steps)
    if is_sealed:
        buffer.seal()
    buffer.snapshot(tmp_path / SNAPSHOT)
    shutil.copytree(segments, tmp_path / "copy")
    history = copy.deepcopy(vars(buffer.history))
    uninterrupted = take_steps(buffer, np.random.default_rng(2), num_steps + 1, 8)

    restored = ReplayBuffer.restore(tmp_path / "copy", tmp_path / SNAPSHOT)
    for name, column in vars(restored.history).items():
        np.testing.assert_array_equal(column, history[name], name)
    assert take_steps(restored, np.random.default_rng(2), num_steps + 1, 8) == uninterrupted


def test_rows_and_the_names_of_their_files_are_on_the_disk_before_the_snapshot(tmp_path, synced, monkeypatch):
    monkeypatch.setattr(append_file, "_sync_data", os.fdatasync)
    segments = tmp_path / "segments"
    buffer = empty_buffer(segments)
    take_steps(buffer, np.random.default_rng(0), 1, 2)
    synced.clear()
    buffer.snapshot(tmp_path / SNAPSHOT)
    assert {segments, *segments.iterdir()} == {*synced[:-2]}
    assert (synced[-2].suffix, synced[-1]) == (".tmp", tmp_path)


def test_resumed_buffer_opens_a_new_segment_and_leaves_older_files_as_they_were(saved):
    buffer, segments, snapshot = saved
    take_steps(buffer, np.random.default_rng(5), 11, 2)
    buffer.close()
    before = files_of(segments)
    restored = ReplayBuffer.restore(segments, snapshot)
    take_steps(restored, np.random.default_rng(6), 11, 3)
    restored.seal()
    after = files_of(segments)
    assert {name: after[name] for name in before} == before
    new = sorted(set(after) - set(before))
    assert new == ["segment-000003.rows", "segment-000003.trajectories"]


def test_seal_starts_a_new_segment_with_the_next_insert_only(tmp_path):
    buffer = empty_buffer(tmp_path)
    buffer.seal()
    assert list(tmp_path.iterdir()) == []
    buffer.insert([success(1, [1])])
    buffer.seal()
    buffer.seal()
    assert len(list(tmp_path.glob("*.rows"))) == 1
    buffer.insert([success(1, [2])])
    assert len(list(tmp_path.glob("*.rows"))) == 2
    assert len(buffer.experiences(buffer.rows_of(1))) == 2


@pytest.mark.parametrize("nth", [1, 2])
def test_no_snapshot_names_what_could_not_be_made_durable(tmp_path, monkeypatch, nth):
    calls = []

    def fail_once(descriptor):
        calls.append(descriptor)
        if len(calls) == nth:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr("exgrpo_core.experience_management.storage.append_file._sync_data", fail_once)
    buffer = empty_buffer(tmp_path / "segments")
    buffer.insert([success(1, [1, 2, 3])])
    for attempt in (buffer.snapshot, lambda _: buffer.seal(), buffer.snapshot):
        with pytest.raises(OSError, match="Input/output"):
            attempt(tmp_path / SNAPSHOT)
    assert not (tmp_path / SNAPSHOT).exists()


def test_snapshot_that_is_missing_or_was_cut_or_changed_anywhere_is_refused(saved):
    _, segments, snapshot = saved
    whole = snapshot.read_bytes()
    damaged = [whole[:length] for length in {0, 1, 7, 8, 19, 20, 24, 60, len(whole) // 2, len(whole) - 1}] + [
        whole + b"x"
    ]
    for position in [*range(40), *range(40, len(whole), 97)]:
        damaged.append(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
    for content in [*damaged, None]:
        snapshot.unlink()
        if content is not None:
            snapshot.write_bytes(content)
        with pytest.raises(BufferCorruptionError, match=SNAPSHOT):
            ReplayBuffer.restore(segments, snapshot)
        snapshot.touch()


@pytest.mark.parametrize("kind", ["trajectories", "rows"])
@pytest.mark.parametrize("number", [1, 2])
def test_missing_or_cut_segment_is_named_and_no_file_is_left_open(saved, kind, number):
    _, segments, snapshot = saved
    before = len(os.listdir("/proc/self/fd"))
    path = segments / f"segment-{number:06d}.{kind}"
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):
        with pytest.raises(BufferCorruptionError, match=path.name):
            ReplayBuffer.restore(segments, snapshot)
        path.unlink(missing_ok=True)
    assert len(os.listdir("/proc/self/fd")) == before


def test_flipped_bit_in_the_rows_of_a_segment_is_found_at_restore(saved):
    _, segments, snapshot = saved
    path = segments / "segment-000001.rows"
    whole = path.read_bytes()
    for position in range(0, len(whole), 131):
        damaged = bytearray(whole)
        damaged[position] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(BufferCorruptionError, match=r"segment-000001\.rows"):
            ReplayBuffer.restore(segments, snapshot)


def test_flipped_bit_in_stored_tokens_or_log_probs_is_found_at_use_and_the_row_named(tmp_path):
    buffer = empty_buffer(tmp_path / "segments")
    buffer.insert([success(1, [1, 2, 3], 10), success(2, [4, 5], 11), success(3, [6], 12)])
    buffer.snapshot(tmp_path / SNAPSHOT)
    buffer.close()
    path = tmp_path / "segments" / "segment-000001.trajectories"
    whole = path.read_bytes()
    for position in range(24, 40):
        damaged = bytearray(whole)
        damaged[position] ^= 16
        path.write_bytes(damaged)
        restored = ReplayBuffer.restore(tmp_path / "segments", tmp_path / SNAPSHOT)
        assert len(restored.experiences(np.array([0, 2]))) == 2
        with pytest.raises(BufferCorruptionError, match=r"segment-000001\.trajectories: row 1 "):
            restored.experiences(np.array([0, 1, 2]))


def test_segment_that_is_cut_while_it_is_open_is_found_at_use(saved):
    _, segments, snapshot = saved
    restored = ReplayBuffer.restore(segments, snapshot)
    os.truncate(segments / "segment-000001.trajectories", 10)
    rows = np.concatenate([restored.rows_of(question) for question in range(NUM_QUESTIONS)])
    with pytest.raises(BufferCorruptionError, match=r"segment-000001\.trajectories: row \d+ "):
        restored.experiences(rows)


@pytest.mark.parametrize(
    "header",
    [b"5", b"[1]", b"{}", b"{", b'{"columns": []}', b'{"columns": {"a": ["<f8", 2]}}', b'{"columns": {"a": 1}}'],
)
def test_a_snapshot_of_another_shape_is_refused_though_its_checksum_is_right(tmp_path, header):
    body = _LENGTH.pack(len(header)) + header
    (tmp_path / SNAPSHOT).write_bytes(_START.pack(MAGIC, _START.size + len(body), zlib.crc32(body)) + body)
    with pytest.raises(BufferCorruptionError, match=r"buffer\.snapshot: not a valid snapshot of a replay buffer"):
        read_snapshot(tmp_path / SNAPSHOT)
