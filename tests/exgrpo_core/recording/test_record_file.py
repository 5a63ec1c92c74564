"""Members of a record: each whole or not read, whatever is around it; gzip alone reads them too."""

import gzip
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exgrpo_core.recording.lines import encode_line
from exgrpo_core.recording.record_file import (
    RecordFile,
    end_of_members,
    iterate_lines,
    list_records,
    pack,
    read_member,
    read_members,
    record_path,
)

LINES = [[encode_line("status", {"number": number})] for number in range(4)]


def test_a_record_and_its_name_are_on_the_disk_once_it_is_synced(tmp_path, synced):
    file = RecordFile(record_path(tmp_path))
    file.append(LINES[0])
    file.sync()
    file.close()
    assert synced == [tmp_path, record_path(tmp_path)]


@pytest.fixture
def path(tmp_path):
    path = record_path(tmp_path)
    file = RecordFile(path)
    for lines in LINES:
        file.append(lines)
    file.close()
    return path


def contents(path, **options):
    return [member.content for member in read_members(path, **options)]


def test_gzip_reads_what_was_appended_and_a_member_is_found_by_its_first_byte(path):
    with gzip.open(path) as file:
        assert file.read() == b"".join(map(b"".join, LINES))
    begins = [member.begin for member in read_members(path)]
    assert [read_member(path, begin).lines() for begin in begins] == [[line[:-1] for line in lines] for lines in LINES]
    assert contents(path, offset=begins[2]) == [b"".join(lines) for lines in LINES[2:]]
    assert end_of_members(path) == path.stat().st_size


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b" ") + b"\n"), min_size=1, max_size=9))
def test_any_lines_come_back_from_pieces_that_are_packed_apart(lines):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("exgrpo_core.recording.record_file._PIECE_BYTES", 50)
        assert gzip.decompress(pack(lines, lines)) == b"".join(lines) * 2


def test_members_without_a_line_of_a_kind_are_not_unpacked(tmp_path):
    path = record_path(tmp_path)
    damaged = bytearray(pack([b'{"kind":"step"}\n']))
    damaged[-6] ^= 1
    path.write_bytes(bytes(damaged) + pack([b'{"kind":"a"}\n', b'{"kind":"b"}\n']))
    assert list(iterate_lines(path, {"b"})) == [b'{"kind":"b"}']
    assert contents(path, kinds={"b"}) == [b'{"kind":"a"}\n{"kind":"b"}\n']
    assert contents(path) == [None, b'{"kind":"a"}\n{"kind":"b"}\n']


def test_a_cut_last_member_waits_until_it_is_whole_and_a_cut_one_before_another_is_passed_over(path):
    whole, last = path.read_bytes(), pack(LINES[3])
    before = len(whole) - len(last)
    for cut in (before, before + 1, before + len(last) // 2, len(whole) - 1):
        path.write_bytes(whole[:cut])
        assert contents(path) == [b"".join(lines) for lines in LINES[:3]]
        assert end_of_members(path) == before
        with path.open("ab") as file:
            file.write(last)
        torn = [None] if cut > before else []
        assert contents(path) == [b"".join(lines) for lines in LINES[:3]] + torn + LINES[3]
        assert end_of_members(path) == path.stat().st_size


def test_a_changed_bit_costs_no_more_than_its_member(path):
    whole = path.read_bytes()
    begin, end = [member.begin for member in read_members(path)][1:3]
    for place in range(begin, end):
        changed = bytearray(whole)
        changed[place] ^= 4
        path.write_bytes(bytes(changed))
        second = [LINES[1][0], None]  # bits that fill up a byte mean nothing
        assert contents(path) in [[LINES[0][0], found, LINES[2][0], LINES[3][0]] for found in second], place


def test_a_failed_write_is_raised_and_what_follows_is_read(path, monkeypatch):
    def fill(file, content):
        if len(content) < 20:
            raise OSError(28, "No space left on device")
        return write(file, content[:-10])

    write, file = os.write, RecordFile(path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", fill)
        with pytest.raises(OSError, match="No space"):
            file.append(LINES[0])
    file.append(LINES[1])
    file.close()
    assert contents(path)[len(LINES) :] == [None, LINES[1][0]]


def test_only_files_of_ranks_are_listed(tmp_path):
    for name in ("record-0000-of-0002.jsonl.gz", "record-0001-of-0002.jsonl.gz", "record-0002-of-0002.jsonl.gz", "x"):
        (tmp_path / name).touch()
    assert [(record.rank, record.num_ranks) for record in list_records(tmp_path)] == [(0, 2), (1, 2)]
