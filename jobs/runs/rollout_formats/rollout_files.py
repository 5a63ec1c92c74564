"""The files at or below a path, packed ones included: which there are, and how each is opened to read."""

import io
import os
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import BinaryIO, cast

import pyarrow as pa

from exgrpo.db.rows.sort_order import natural_order
from exgrpo_core.bounded_json import UnreadableFileError, open_plain

_MAX_FILES = 100_000
_PACKED = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"\x5e\x2a\x4d\x18": "zstd"}
"""How files begin that are unpacked while they are read; a zstd file may begin with a frame without content."""
_ENDINGS = (".gz", ".zst")
_BLOCK_BYTES = 1 << 20
left_out: dict[Path, str] = {}
"""Files that this process does not read, each with why: another one that read them had to be ended."""
listeners: list[Callable[[Path | None], None]] = []
"""They are told which file is read next, and at each part of it that it goes on."""


def announce(file: Path | None = None) -> None:
    """Tell the listeners which file is read next, or that the reading goes on."""
    for listener in listeners:
        listener(file)


def bare(file: Path) -> Path:
    """Return a file's path without the ending of a packed one: `3.jsonl` for `3.jsonl.gz`."""
    return file.with_suffix("") if file.suffix in _ENDINGS else file


def open_rows(file: Path) -> BinaryIO:
    """Open a plain file to read from its beginning; what gzip or zstd packed is unpacked as it is read.

    Raises:
        UnreadableFileError: It is no plain file.
        OSError: It is missing or cannot be opened. Reading raises it where a packed file is cut off or damaged.
    """
    opened = open_plain(file)
    start = opened.read(4)
    opened.seek(0)
    kind = next((kind for sign, kind in _PACKED.items() if start.startswith(sign)), "")
    return cast("BinaryIO", io.BufferedReader(pa.CompressedInputStream(opened, kind))) if kind else opened


def read_whole(file: Path, max_bytes: int) -> bytes:
    """Return the content of a file that is read at once, unpacked.

    Raises:
        UnreadableFileError: It is no plain file, or larger than `max_bytes`.
        OSError: It is missing, cut off or damaged.
    """
    content = bytearray()
    with open_rows(file) as opened:
        while block := opened.read(_BLOCK_BYTES):
            content += block
            if len(content) > max_bytes:
                raise UnreadableFileError(f"{file}: expected at most {max_bytes:,} bytes; use another copy.")
    return bytes(content)


def skip(opened: BinaryIO, num_bytes: int) -> bool:
    """Go forward in a file that was just opened; return whether it has so many bytes."""
    if opened.seekable():
        start = opened.tell()
        has_them = opened.seek(0, os.SEEK_END) >= start + num_bytes
        opened.seek(start + num_bytes)
        return has_them
    while num_bytes and (block := opened.read(min(num_bytes, _BLOCK_BYTES))):
        num_bytes -= len(block)
    return not num_bytes


def list_files(path: Path) -> list[Path]:
    """Return the files at or below a path, `2.jsonl` before `10.jsonl`; hidden ones are left out.

    Links to folders are followed, but each folder is read once. A packed file is left out while the unpacked file is
    next to it.

    Raises:
        OSError: The path is missing or cannot be read.
    """
    return in_order(path, islice(_walk(path), _MAX_FILES))


def in_order(path: Path, files: Iterable[Path]) -> list[Path]:
    """Return files below a path in the natural order of their names."""
    return sorted(files, key=lambda file: natural_order(file.relative_to(path).as_posix()))


def _walk(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        path.stat()
        if path not in left_out:
            yield path
    root, seen = path.resolve(), set[tuple[int, int]]()
    for folder, folders, names in os.walk(path, followlinks=True):
        about = os.stat(folder)
        if (about.st_dev, about.st_ino) in seen:
            folders.clear()
            continue
        seen.add((about.st_dev, about.st_ino))
        shown = (Path(folder, name) for name in sorted(folders) if not name.startswith("."))
        folders[:] = [inner.name for inner in shown if not (inner.is_symlink() and _is_of(root, inner.resolve()))]
        packed = {f"{name}{ending}" for name in names for ending in _ENDINGS}
        found = (Path(folder, name) for name in names if not name.startswith(".") and name not in packed)
        yield from (file for file in found if file not in left_out)


def _is_of(root: Path, target: Path) -> bool:
    """Whether the folder that a link leads to is read without it, or has all that is read in it."""
    return target.is_relative_to(root) or root.is_relative_to(target)
