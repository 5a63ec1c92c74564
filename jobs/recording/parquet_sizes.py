"""Parquet files from elsewhere: a few kilobytes may hold more than fits into memory."""

from collections.abc import Collection
from pathlib import Path

import pyarrow.compute as pc
import pyarrow.parquet as pq

from exgrpo_core.bounded_json import UnreadableFileError

MAX_ROWS = 1 << 22
MAX_BYTES = 1 << 32
"""Of what is read of a file: several times 100,000 trajectories of a step."""
_VALUE_BYTES = 8


def check_size(path: Path, names: Collection[str] = ()) -> None:
    """Refuse a file whose columns of these names, by default all, take too much memory, before they are read.

    Raises:
        UnreadableFileError: It does.
        pyarrow.ArrowException: It is no Parquet file.
    """
    content = pq.read_metadata(path)
    groups = [content.row_group(number) for number in range(content.num_row_groups)]
    all_columns = [group.column(number) for group in groups for number in range(content.num_columns)]
    columns = [column for column in all_columns if not names or column.path_in_schema.partition(".")[0] in names]
    num_bytes = sum(column.total_uncompressed_size + _VALUE_BYTES * column.num_values for column in columns)
    texts = [column for column in columns if column.physical_type == "BYTE_ARRAY" and column.has_dictionary_page]
    if sum(column.total_uncompressed_size * column.num_values for column in texts) > MAX_BYTES:
        num_bytes += sum(_repeated_bytes(path, name) for name in {column.path_in_schema for column in texts})
    if content.num_rows > MAX_ROWS or num_bytes > MAX_BYTES:
        raise UnreadableFileError(f"{path}: expected at most {MAX_ROWS:,} rows and {MAX_BYTES:,} bytes in memory.")


def _repeated_bytes(path: Path, column: str) -> int:
    """Return the bytes of all texts of a column that a file keeps once each; of lists of texts, more than allowed."""
    if "." in column:
        return MAX_BYTES + 1
    table = pq.read_table(path, columns=[column], read_dictionary=[column])
    lengths = [pc.sum(pc.take(pc.binary_length(part.dictionary), part.indices)) for part in table[column].chunks]
    return sum(length.as_py() or 0 for length in lengths)
