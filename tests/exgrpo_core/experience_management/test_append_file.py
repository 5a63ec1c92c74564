import os

import pytest

from exgrpo_core.experience_management.append_file import AppendFile


def test_map_made_earlier_keeps_its_bytes_while_the_file_grows(tmp_path):
    file = AppendFile.create(tmp_path / "grows")
    file.append(b"abc")
    early = file.mapped(3)
    file.append(b"defg")
    assert file.mapped(2) is early
    assert file.mapped(7)[:] == b"abcdefg"
    assert early[:] == b"abc"


def test_file_that_is_there_is_never_opened_for_appending(tmp_path):
    (tmp_path / "there").write_bytes(b"old")
    with pytest.raises(FileExistsError):
        AppendFile.create(tmp_path / "there")


def test_nothing_can_be_appended_to_a_sealed_file(tmp_path):
    file = AppendFile.create(tmp_path / "sealed")
    file.append(b"abc")
    file.seal()
    with pytest.raises(ValueError, match="is sealed"):
        file.append(b"d")
    assert (tmp_path / "sealed").read_bytes() == b"abc"


def test_bytes_behind_the_known_part_of_a_file_are_not_shown(tmp_path):
    (tmp_path / "old").write_bytes(b"abcdefg")
    assert AppendFile.open_sealed(tmp_path / "old", 4).mapped(4)[:] == b"abcd"


def test_short_writes_are_continued(tmp_path, monkeypatch):
    whole_write = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: whole_write(descriptor, data[:2], offset))
    file = AppendFile.create(tmp_path / "short")
    file.append(b"abcdefg")
    file.sync()
    assert (tmp_path / "short").read_bytes() == b"abcdefg"
