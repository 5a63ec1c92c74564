"""A Parquet file that takes more than its metadata show, as texts that repeat the one before do, is refused."""

import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.actions import parquet_check
from jobs.actions.archive import ArchiveError, export_run, import_run
from jobs.actions.backup import back_up, restore
from jobs.recording.parquet_sizes import check_size
from jobs.runs.directory import RunDirectory
from jobs.specs.train import TrainSpec

PATH = "trajectories/step-000001.parquet"


@pytest.fixture
def run(tmp_path):
    (tmp_path / "runs").mkdir()
    run = RunDirectory.create(tmp_path / "runs", TrainSpec(name="one"))
    (run.path / PATH).parent.mkdir(exist_ok=True)
    return run


@pytest.fixture
def bomb(run, monkeypatch):
    """Of 1.6 GB, where half of that is allowed, behind a file that passes."""
    monkeypatch.setattr(parquet_check, "MAX_BYTES", 800_000_000 - parquet_check._PROCESS_BYTES)
    texts = pa.chunked_array([pa.array(["a" * (1 << 20)] * 100)] * 16)
    encodings = {"response_text": "DELTA_BYTE_ARRAY"}
    table = pa.table({"response_text": texts})
    pq.write_table(table, run.path / PATH, use_dictionary=False, column_encoding=encodings, write_statistics=False)
    check_size(run.path / PATH)
    pq.write_table(pa.table({"response_text": ["a"]}), run.path / "trajectories/step-000000.parquet")
    return run


@pytest.mark.parametrize("is_file", [False, True])
def test_run_is_not_imported(bomb, tmp_path, is_file):
    source = export_run(bomb, tmp_path / "run.tar.gz") if is_file else bomb.path
    with pytest.raises(ArchiveError, match=rf"{source}: {bomb.run_id}/{PATH} takes more than .* of memory to read"):
        import_run(source, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []


@pytest.mark.usefixtures("bomb")
def test_backup_is_not_restored(tmp_path):
    back_up(tmp_path / "runs", None, tmp_path / "backup.tar.gz")
    with pytest.raises(ArchiveError, match=rf"{PATH} takes more than .* of memory"):
        restore(tmp_path / "backup.tar.gz", tmp_path / "elsewhere")
    assert not (tmp_path / "elsewhere").exists()


def test_slow_file_is_named(run, tmp_path, monkeypatch):
    pq.write_table(pa.table({"response_text": ["a"]}), run.path / PATH)
    monkeypatch.setattr(parquet_check, "BASE_SECONDS", 0.0)
    with pytest.raises(ArchiveError, match=rf"{PATH} takes more than 0 s, .* to read"):
        import_run(run.path, tmp_path / "elsewhere")


@pytest.mark.parametrize("content", [b"", b"PAR1 and more", b"PAR1" + bytes(100) + b"PAR1"])
def test_damaged_file_is_left_to_its_readers(run, tmp_path, content):
    (run.path / PATH).write_bytes(content)
    assert import_run(run.path, tmp_path / "elsewhere") == run.run_id


def test_lower_limit_of_the_machine_is_kept(run, tmp_path, monkeypatch):
    pq.write_table(pa.table({"response_text": ["a"]}), run.path / PATH)
    (tmp_path / "python").write_text(f'#!/bin/sh\nulimit -v 4000000\nexec {sys.executable} "$@"\n')
    (tmp_path / "python").chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    assert import_run(run.path, tmp_path / "elsewhere") == run.run_id


@pytest.mark.parametrize("program", ["/bin/false", "/no/such/program"])
def test_check_that_cannot_run_blames_no_file(run, tmp_path, monkeypatch, program):
    pq.write_table(pa.table({"response_text": ["a"]}), run.path / PATH)
    monkeypatch.setattr(sys, "executable", program)
    with pytest.raises(ArchiveError, match=r"check(ed)? .*; nothing is written"):
        import_run(run.path, tmp_path / "elsewhere")
    assert list((tmp_path / "elsewhere").iterdir()) == []
