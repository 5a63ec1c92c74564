"""A small Parquet file that takes much memory is refused before it is read."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from exgrpo_core.bounded_json import UnreadableFileError
from jobs.recording import parquet_sizes
from jobs.recording.trajectory_file import read_questions, read_trajectories


def repeated(text, count):
    return pa.DictionaryArray.from_arrays(pa.array([0] * count, pa.int32()), pa.array([text]))


def in_one_list(values):
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


HOSTILE = {
    "many rows": repeated("x", 20_001),
    "one text many times": repeated("x" * 10_000, 1_000),
    "a list of one number": in_one_list(pa.array([7] * 200_000, pa.int64())),
    "a list of one text": in_one_list(repeated("x" * 10_000, 1_000)),
}


@pytest.mark.parametrize("column", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("read", [read_questions, read_trajectories])
def test_small_file_that_takes_much_memory_is_refused(tmp_path, column, read, monkeypatch):
    monkeypatch.setattr(parquet_sizes, "MAX_BYTES", 1_000_000)
    monkeypatch.setattr(parquet_sizes, "MAX_ROWS", 20_000)
    pq.write_table(pa.table({"a": column}), tmp_path / "file.parquet", store_schema=False, compression="zstd")
    assert (tmp_path / "file.parquet").stat().st_size < 5_000
    with pytest.raises(UnreadableFileError, match=r"file\.parquet: expected at most .* in memory"):
        read(tmp_path / "file.parquet")


def test_texts_kept_once_count_as_often_as_they_are_there(tmp_path, monkeypatch):
    monkeypatch.setattr(parquet_sizes, "MAX_BYTES", 1_000_000)
    pq.write_table(pa.table({"a": repeated("x" * 100, 9_000)}), tmp_path / "file.parquet")
    assert len(read_trajectories(tmp_path / "file.parquet")) == 9_000
