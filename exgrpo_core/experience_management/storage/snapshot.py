"""A snapshot file: a header and numeric columns, written as a whole and checked as a whole.

Layout: 8 bytes of `MAGIC`, the file's length (uint64), the crc32 of all that follows (uint32), the header's length
(uint32), the header (JSON), the columns one after the other. Numbers are little-endian.
"""

import json
import struct
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from exgrpo_core.bounded_json import UnreadableFileError, open_plain, parse_json
from exgrpo_core.durable_files import whole_file
from exgrpo_core.experience_management.storage.append_file import ODD_CONTENT, BufferCorruptionError

MAGIC = b"EXGRPOB1"
_START = struct.Struct("<8sQI")
_LENGTH = struct.Struct("<I")


def write_snapshot(path: Path, header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> None:
    """Write a snapshot so that `path` always holds all of the old file or all of the new one."""
    block = encode_block(header, columns)
    with whole_file(path) as file:
        file.write(block)


def encode_block(header: Mapping[str, Any], columns: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of a snapshot file."""
    shapes = {name: [column.dtype.str, column.size] for name, column in columns.items()}
    encoded = json.dumps({**header, "columns": shapes}).encode()
    body = b"".join((_LENGTH.pack(len(encoded)), encoded, *(column.tobytes() for column in columns.values())))
    return _START.pack(MAGIC, _START.size + len(body), zlib.crc32(body)) + body


def read_snapshot(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """Return header and columns of a snapshot; the columns are read-only.

    Raises:
        BufferCorruptionError: The file is missing, cut or altered, or is no snapshot.
    """
    try:
        with open_plain(path) as file:
            content = file.read()
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BufferCorruptionError(
            f"{path}: cannot be read ({error.strerror}); use a complete copy of the checkpoint or an older one."
        ) from error
    except UnreadableFileError as error:
        raise BufferCorruptionError(str(error)) from error
    if len(content) < _START.size + _LENGTH.size or content[: len(MAGIC)] != MAGIC:
        raise BufferCorruptionError(f"{path}: is not a whole snapshot of a replay buffer; use an older checkpoint.")
    _, num_bytes, crc32 = _START.unpack_from(content)
    if num_bytes != len(content):
        raise BufferCorruptionError(
            f"{path}: expected {num_bytes} bytes, got {len(content)}; it was cut, use an older checkpoint."
        )
    if zlib.crc32(memoryview(content)[_START.size :]) != crc32:
        raise BufferCorruptionError(f"{path}: differs from what was written (checksum); use an older checkpoint.")
    try:
        return _decode(content)
    except (AttributeError, *ODD_CONTENT) as error:
        raise BufferCorruptionError(
            f"{path}: not a valid snapshot of a replay buffer; use an older checkpoint."
        ) from error


def _decode(content: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    (length,) = _LENGTH.unpack_from(content, _START.size)
    offset = _START.size + _LENGTH.size + length
    header: dict[str, Any] = parse_json(content[offset - length : offset])
    columns = {}
    for name, (dtype, size) in header.pop("columns").items():
        columns[name] = np.frombuffer(content, dtype, size, offset)
        offset += columns[name].nbytes
    return header, columns
