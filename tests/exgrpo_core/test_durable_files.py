"""A file is whole under its name or as it was, whatever fails on the way."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from exgrpo_core import durable_files
from exgrpo_core.durable_files import append_line, explain, reserve, reserved_name, whole_file, write_whole


def test_a_file_holds_what_was_written_and_leaves_no_other(tmp_path):
    write_whole(tmp_path / "a.json", "first, long")
    write_whole(tmp_path / "a.json", b"second")
    assert (tmp_path / "a.json").read_text() == "second"
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_file_is_on_the_disk_before_its_name_and_a_line_once_it_is_appended(tmp_path, synced):
    write_whole(tmp_path / "a", "whole")
    append_line(tmp_path / "b", b"line")
    assert [path.suffix for path in synced] == [".tmp", "", ""]
    assert synced[1:] == [tmp_path, tmp_path / "b"]
    write_whole(tmp_path / "c", "", syncs_folder=False)
    write_whole(tmp_path / "d", "", is_durable=False)
    assert [path.suffix for path in synced[3:]] == [".tmp"]


@pytest.mark.parametrize("fails_in", ["block", "fsync", "rename"])
def test_a_write_that_fails_leaves_the_file_as_it_was(tmp_path, monkeypatch, fails_in):
    path = tmp_path / "a.json"
    write_whole(path, "before")

    def fail(*_):
        raise OSError(28, "No space left on device")

    if fails_in == "fsync":
        monkeypatch.setattr(durable_files.os, "fsync", fail)
    elif fails_in == "rename":
        monkeypatch.setattr(type(path), "replace", fail)

    def write():
        with whole_file(path) as file:
            file.write(b"after")
            if fails_in == "block":
                fail()

    with pytest.raises(OSError, match="No space left"):
        write()
    assert path.read_text() == "before"
    assert os.listdir(tmp_path) == ["a.json"]


def test_reserved_space_is_written_over_and_kept_if_the_write_fails(tmp_path):
    path = tmp_path / "outcome.json"
    reserve(path, 100)
    blocks = reserved_name(path).stat().st_ino
    with pytest.raises(RuntimeError), whole_file(path):
        raise RuntimeError
    assert reserved_name(path).stat().st_ino == blocks
    write_whole(path, "{}")
    assert path.stat().st_ino == blocks
    assert path.read_text() == "{}"


def test_a_torn_line_spoils_no_other_and_lines_of_many_writers_stay_whole(tmp_path):
    path = tmp_path / "journal"
    append_line(path, b"one")
    path.write_bytes(path.read_bytes() + b"tor")
    append_line(path, b"two")
    assert path.read_bytes() == b"one\ntor\ntwo\n"
    with ThreadPoolExecutor(16) as writers:
        list(writers.map(append_line, [path] * 16, [b"x" * 9000] * 16))
    assert path.read_bytes().splitlines()[3:] == [b"x" * 9000] * 16


def test_of_two_writers_at_once_each_is_whole(tmp_path):
    path = tmp_path / "draft.yaml"
    with whole_file(path) as slow:
        slow.write(b"the slow one, half")
        write_whole(path, "the quick one")
        assert path.read_text() == "the quick one"
        slow.write(b" and whole")
    assert path.read_text() == "the slow one, half and whole"
    assert os.listdir(tmp_path) == ["draft.yaml"]


@pytest.mark.parametrize("place", ["nowhere/a", "file/a", ".", "x" * 300])
def test_a_path_that_cannot_be_written_is_told_with_what_to_do(tmp_path, place):
    (tmp_path / "file").touch()
    with pytest.raises(OSError) as raised:  # noqa: PT011 - each of another kind
        (tmp_path / place).write_text("")
    assert explain(raised.value).endswith("; correct the path, or name another")
