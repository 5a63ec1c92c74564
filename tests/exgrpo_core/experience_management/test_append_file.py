import errno
import os

import pytest

from exgrpo_core.experience_management.append_file import AppendFile


def test_what_was_appended_is_read_back_before_and_after_it_is_written(tmp_path):
    file = AppendFile.create(tmp_path / "grows")
    file.append([b"abc"])
    assert file.read(1, 2) == b"bc"
    file.append([b"defg"])
    assert file.read(2, 4) == b"cdef"
    assert bytes(file.view()) == b"abcdefg"
    file.seal()
    assert file.read(2, 4) == b"cdef"
    assert bytes(file.view()) == b"abcdefg"


def test_what_is_in_memory_is_read_at_once(tmp_path):
    file = AppendFile.create(tmp_path / "grows")
    file.append([b"abcdefg"])
    parts = [memoryview(bytearray(4)), memoryview(bytearray(1))]
    assert file.read_ahead([2, 0], parts) == []
    assert parts == [b"cdef", b"a"]


@pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_what_is_not_in_memory_is_asked_for_and_read_later(tmp_path, monkeypatch, refusal):
    file = AppendFile.create(tmp_path / "cold")
    file.append([b"abcdefg"])
    file.seal()
    asked = []
    plain_read = os.preadv

    def refuse_without_waiting(descriptor, buffers, offset, flags=0):
        if flags:
            raise OSError(refusal, "would wait")
        return plain_read(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", refuse_without_waiting)
    monkeypatch.setattr(os, "posix_fadvise", lambda *arguments: asked.append(arguments[1:]))
    part = memoryview(bytearray(4))
    assert file.read_ahead([2], [part]) == [0]
    assert asked == [(2, 4, os.POSIX_FADV_WILLNEED)]
    file.fill(2, part)
    assert part == b"cdef"


def test_what_was_cut_off_is_read_as_zeros_and_not_as_what_stood_there(tmp_path):
    file = AppendFile.create(tmp_path / "cut")
    file.append([b"abcdefg"])
    file.seal()
    os.truncate(file.path, 3)
    part = memoryview(bytearray(b"cdef"))
    assert file.read_ahead([2], [part]) == [0]
    file.fill(2, part)
    assert part == b"c\0\0\0"


def test_failing_disk_is_not_taken_for_a_cold_one(tmp_path, monkeypatch):
    file = AppendFile.create(tmp_path / "broken")
    file.append([b"abcdefg"])

    def fail(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "preadv", fail)
    with pytest.raises(OSError, match="Input/output"):
        file.read_ahead([2], [memoryview(bytearray(4))])


def test_file_that_is_there_is_never_opened_for_appending(tmp_path):
    (tmp_path / "there").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        AppendFile.create(tmp_path / "there")


def test_nothing_can_be_appended_to_a_sealed_file(tmp_path):
    file = AppendFile.create(tmp_path / "sealed")
    file.append([b"abc"])
    file.seal()
    with pytest.raises(ValueError, match="is sealed"):
        file.append([b"d"])
    assert (tmp_path / "sealed").read_bytes() == b"abc"


def test_bytes_behind_the_known_part_of_a_file_are_not_shown(tmp_path):
    (tmp_path / "old").write_bytes(b"abcdefg")
    assert AppendFile.open_sealed(tmp_path / "old", 4).view() == b"abcd"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    whole_write = os.pwrite
    monkeypatch.setattr(
        os, "pwritev", lambda descriptor, parts, offset: whole_write(descriptor, b"".join(parts)[:2], offset)
    )
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: whole_write(descriptor, data[:2], offset))
    file = AppendFile.create(tmp_path / "short")
    file.append([b"abc", b"defg"])
    file.append([b"hij"])
    file.sync()
    assert (tmp_path / "short").read_bytes() == b"abcdefghij"


def test_more_parts_than_one_write_takes_are_all_written(tmp_path):
    file = AppendFile.create(tmp_path / "many")
    file.append([bytes([i % 251]) for i in range(2500)])
    assert file.read(0, 2500) == bytes(i % 251 for i in range(2500))
