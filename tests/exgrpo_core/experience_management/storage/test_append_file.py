import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from exgrpo_core.experience_management.storage.append_file import AppendFile

pytestmark = pytest.mark.slow


@pytest.fixture
def writer():
    with ThreadPoolExecutor(max_workers=1) as writer:
        yield writer


def test_what_was_appended_is_read_back_before_and_after_it_is_written(tmp_path, writer):
    file = AppendFile.create(tmp_path / "grows", writer)
    file.append(b"abc")
    assert file.read(1, 2) == b"bc"
    file.append(b"defg")
    assert file.read(2, 4) == b"cdef"
    assert bytes(file.view()) == b"abcdefg"
    part = memoryview(bytearray(4))
    assert file.read_ahead([2], [part]) == []
    assert part == b"cdef"
    file.seal()
    assert file.read(2, 4) == b"cdef"
    assert bytes(file.view()) == b"abcdefg"
    assert AppendFile.open_sealed(file.path, 4).view() == b"abcd", "bytes behind the known part are not shown"
    with pytest.raises(ValueError, match="is sealed"):
        file.append(b"d")
    with pytest.raises(FileExistsError):
        AppendFile.create(file.path, writer)


@pytest.mark.parametrize("refusal", [errno.EAGAIN, errno.EOPNOTSUPP])
def test_what_is_not_in_memory_is_asked_for_and_read_later(tmp_path, writer, monkeypatch, refusal):
    file = AppendFile.create(tmp_path / "cold", writer)
    file.append(b"abcdefg")
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


def test_what_was_cut_off_is_read_as_zeros_and_not_as_what_stood_there(tmp_path, writer):
    file = AppendFile.create(tmp_path / "cut", writer)
    file.append(b"abcdefg")
    file.seal()
    os.truncate(file.path, 3)
    part = memoryview(bytearray(b"cdef"))
    assert file.read_ahead([2], [part]) == [0]
    file.fill(2, part)
    assert part == b"c\0\0\0"


def test_short_writes_are_continued(tmp_path, writer, monkeypatch):
    whole_write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: whole_write(descriptor, data[:2], offset))
    file = AppendFile.create(tmp_path / "short", writer)
    file.append(b"abcdefg")
    file.append(b"hij")
    file.settle()
    assert (tmp_path / "short").read_bytes() == b"abcdefghij"


def test_who_appends_does_not_wait_and_who_reads_does(tmp_path, writer, monkeypatch):
    may_write, plain_write = threading.Event(), os.pwrite

    def write_when_told(*arguments):
        assert may_write.wait(60)
        return plain_write(*arguments)

    monkeypatch.setattr(os, "pwrite", write_when_told)
    file = AppendFile.create(tmp_path / "slow", writer)
    file.append(b"abc")
    file.sync()
    assert (file.num_bytes, (tmp_path / "slow").stat().st_size) == (3, 0)
    may_write.set()
    assert file.read(0, 3) == b"abc"


@pytest.mark.parametrize("call", [lambda file: file.read(0, 3), lambda file: file.append(b"d"), AppendFile.seal])
def test_what_could_not_be_written_is_told_to_every_later_call(tmp_path, writer, monkeypatch, call):
    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    file = AppendFile.create(tmp_path / "full", writer)
    monkeypatch.setattr(os, "pwrite", fail)
    file.append(b"abc")
    writer.submit(int).result()
    monkeypatch.undo()
    for _ in range(2):
        with pytest.raises(OSError, match="No space left"):
            call(file)
    with pytest.raises(OSError, match="No space left"):
        file.close()
