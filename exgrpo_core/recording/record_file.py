"""The file of a rank in an attempt's folder, `record-RANK-of-RANKS.jsonl.gz`: gzip members of JSON lines.

What is appended at once, such as a step with its trajectories, is one member: a reader sees all of it or nothing. The
checksum of gzip covers it. `zcat` prints the lines. The header of a member has its length and the kinds of its lines,
so a reader steps over members without unpacking them, and finds the next one after damage.
"""

import os
import re
import struct
import zlib
from collections.abc import Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import BinaryIO

from exgrpo_core.bounded_json import open_plain
from exgrpo_core.durable_files import sync

FILE_PATTERN = "record-*.jsonl.gz"
_NAME = re.compile(r"record-([0-9]{4,9})-of-([0-9]{4,9})\.jsonl\.gz")
_MAGIC = b"\x1f\x8b\x08\x04\0\0\0\0\x04\xff"
"""Of gzip: deflate, with an extra field, without a time, fast, of an unknown system."""
_EXTRA = struct.Struct("<H2sHQ")
"""Size of the extra fields, name and size of ours, length of the member; the kinds follow, with commas between them."""
_HEADER_BYTES = len(_MAGIC) + _EXTRA.size
_NAME_OF_EXTRA = b"ER"
_END = b"\x03\x00"
"""An empty last block."""
_PIECE_BYTES = 1 << 20
_MAX_BYTES, _MAX_RATIO = 256 << 20, 64
"""What unpacks to more than both, these bytes and this many times its length, counts as damaged."""
_LEVEL = 1
_KIND = re.compile(rb'{"kind":"(\w+)"')


@dataclass(frozen=True, slots=True)
class RecordPath:
    """The file of one rank."""

    path: Path
    rank: int
    num_ranks: int


@dataclass(frozen=True, slots=True)
class Member:
    """What was appended at once: its first byte in the file and the byte after it; `content` is None if damaged."""

    begin: int
    end: int
    content: bytes | None

    def lines(self) -> list[bytes]:
        """Return its lines, none of a damaged one."""
        return (self.content or b"").splitlines()


def record_path(attempt_path: Path, rank: int = 0, num_ranks: int = 1) -> Path:
    """Return the file in which a rank records."""
    return attempt_path / f"record-{rank:04d}-of-{num_ranks:04d}.jsonl.gz"


def list_records(attempt_path: Path) -> list[RecordPath]:
    """Return the files of an attempt, by rank."""
    matches = [(path, _NAME.fullmatch(path.name)) for path in sorted(attempt_path.glob(FILE_PATTERN))]
    found = [RecordPath(path, int(match[1]), int(match[2])) for path, match in matches if match]
    return [record for record in found if record.rank < record.num_ranks]


def pack(lines: Iterable[bytes], values: Iterable[bytes] = ()) -> bytes:
    """Return the member of lines, each with its newline; `values` are lines of base64, which pack by another rule.

    Threads pack pieces of a large one while its lines are made.
    """
    kinds: set[bytes] = set()
    total = [0, 0]  # checksum and bytes
    pieces = chain(_pieces(lines, kinds, zlib.Z_DEFAULT_STRATEGY), _pieces(values, kinds, zlib.Z_RLE))
    begin = [*islice(pieces, 2)]
    if len(begin) < 2:
        packed = [_deflate(_counted(piece, total)) for piece in begin]
    else:
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:
            futures = [threads.submit(_deflate, _counted(piece, total)) for piece in chain(begin, pieces)]
            packed = [future.result() for future in futures]
    crc, num_bytes = total
    blocks = b"".join(packed)
    names = b",".join(sorted(kinds))
    length = _HEADER_BYTES + len(names) + len(blocks) + len(_END) + 8
    header = _MAGIC + _EXTRA.pack(12 + len(names), _NAME_OF_EXTRA, 8 + len(names), length) + names
    return b"".join((header, blocks, _END, struct.pack("<II", crc, num_bytes & 0xFFFFFFFF)))


def _pieces(lines: Iterable[bytes], kinds: set[bytes], strategy: int) -> Iterator[tuple[bytes, int]]:
    """Yield the lines together, about `_PIECE_BYTES` each, and gather their kinds."""
    piece: list[bytes] = []
    size = 0
    for line in lines:
        if match := _KIND.match(line):
            kinds.add(match[1])
        piece.append(line)
        size += len(line)
        if size >= _PIECE_BYTES:
            yield b"".join(piece), strategy
            piece, size = [], 0
    if piece:
        yield b"".join(piece), strategy


def _counted(piece: tuple[bytes, int], total: list[int]) -> tuple[bytes, int]:
    total[:] = zlib.crc32(piece[0], total[0]), total[1] + len(piece[0])
    return piece


def _deflate(piece: tuple[bytes, int]) -> bytes:
    packer = zlib.compressobj(_LEVEL, zlib.DEFLATED, -zlib.MAX_WBITS, 9, piece[1])
    return packer.compress(piece[0]) + packer.flush(zlib.Z_FULL_FLUSH)


class RecordFile:
    """The open file of a rank, which is only appended to: by one system call a member, so forks can share it."""

    def __init__(self, path: Path) -> None:
        """Open the file, or make it.

        Raises:
            OSError: It cannot be opened.
        """
        is_new = not path.exists()
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if is_new:
            sync(path.parent)

    def append(self, lines: Iterable[bytes], values: Iterable[bytes] = ()) -> None:
        """Append lines as one member, which survives a kill of the program once this returned.

        Raises:
            OSError: It could not be written whole; what is written of it is skipped by readers.
        """
        rest = memoryview(pack(lines, values))
        while rest:
            rest = rest[os.write(self._file, rest) :]

    def sync(self) -> None:
        """Return once everything is on disk.

        Raises:
            OSError: It cannot be written.
        """
        os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_members(path: Path, offset: int = 0, kinds: Collection[str] | None = None) -> Iterator[Member]:
    """Yield the members from a byte on, in order; of those without a line of `kinds`, none.

    A damaged member, or one that a kill cut, is yielded without content if another one follows; the last one, which
    may still be being written, is left out until it is whole.
    """
    wanted = None if kinds is None else {kind.encode() for kind in kinds}
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        while offset < size:
            end, held = _read_header(file, offset, size)
            if end and wanted is not None and wanted.isdisjoint(held) and _is_end(file, end, size):
                offset = end
                continue
            content = _read_content(file, offset, end) if end else None
            if content is None:
                end = _find_member(file, offset + 1, size)
                if not end:
                    return
            yield Member(offset, end, content)
            offset = end


def read_member(path: Path, begin: int) -> Member | None:
    """Return the member that begins at a byte, None if there is no whole one."""
    member = next(read_members(path, begin), None)
    return None if member is None or member.content is None else member


def member_bytes(path: Path, begin: int) -> int:
    """Return the length of the member that begins at a byte, as its header says, 0 if there is no whole one."""
    with open_plain(path) as file:
        end, _ = _read_header(file, begin, os.fstat(file.fileno()).st_size)
    return max(0, end - begin)


def end_of_members(path: Path) -> int:
    """Return the end of the last member whose header and length are whole."""
    end = 0
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        while end < size:
            found, _ = _read_header(file, end, size)
            if not (found and _is_end(file, found, size)):
                found = _find_member(file, end + 1, size)
            if not found:
                break
            end = found
    return end


def _read_header(file: BinaryIO, begin: int, size: int) -> tuple[int, Collection[bytes]]:
    """Return where the member that begins at a byte ends, 0 if there is no whole one, and the kinds of its lines."""
    file.seek(begin)
    header = file.read(_HEADER_BYTES)
    if not header.startswith(_MAGIC) or len(header) < _HEADER_BYTES:
        return 0, ()
    num_extra, name, num_ours, length = _EXTRA.unpack(header[len(_MAGIC) :])
    is_ours = name == _NAME_OF_EXTRA and num_ours >= 8 and num_extra == 4 + num_ours
    if not is_ours or not _HEADER_BYTES < length <= size - begin:
        return 0, ()
    return begin + length, file.read(num_ours - 8).split(b",")


def _is_end(file: BinaryIO, end: int, size: int) -> bool:
    """Whether a member can end there: another one begins, or the file ends; one that was cut says a wrong end."""
    file.seek(end)
    return end == size or _MAGIC.startswith(file.read(len(_MAGIC)))


def _read_content(file: BinaryIO, begin: int, end: int) -> bytes | None:
    file.seek(begin)
    unpacker = zlib.decompressobj(16 + zlib.MAX_WBITS)
    try:
        content = unpacker.decompress(file.read(end - begin), max(_MAX_BYTES, _MAX_RATIO * (end - begin)))
    except zlib.error:
        return None
    return content if unpacker.eof and not unpacker.unused_data else None


def _find_member(file: BinaryIO, begin: int, size: int) -> int:
    """Return the first byte from `begin` on at which a header begins, 0 if there is none."""
    while begin < size:
        file.seek(begin)
        block = file.read(_PIECE_BYTES + len(_MAGIC) - 1)
        found = block.find(_MAGIC)
        if found >= 0:
            return begin + found
        begin += _PIECE_BYTES
    return 0


def iterate_lines(path: Path, kinds: Iterable[str]) -> Iterator[bytes]:
    """Yield a file's lines of these kinds."""
    names = {kind.encode() for kind in kinds}
    for member in read_members(path, 0, kinds=[*map(bytes.decode, names)]):
        for line in member.lines():
            match = _KIND.match(line)
            if match is not None and match[1] in names:
                yield line
