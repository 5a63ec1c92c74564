"""JSON from files that anybody may have written, bounded in size and depth, and checksums of what we wrote.

A sealed JSON mapping has its checksum as the last field: `{"a": 1}` becomes `{"a": 1,"crc":N}`; N is the CRC-32 of the
text without that field.
"""

import json
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any, BinaryIO
from zlib import crc32

from exgrpo_core.errors import InputError, shown

MAX_FILE_BYTES = 4 << 20
"""More than the size of any small file of a run."""
MAX_DEPTH = 64
"""Lists and mappings inside each other; the program's own files have less than ten levels."""
LONG_NUMBER = "has a number of thousands of digits; write a smaller one"
"""Of a whole number that Python refuses to read, since the time grows with the square of the digits."""
_BRACKETS = b"[]{}"
_OTHERS = bytes(byte for byte in range(256) if byte not in _BRACKETS)


class UnreadableFileError(InputError, ValueError):
    """A file that holds something else than expected; one sentence names it and what was expected."""


def open_plain(path: Path, advice: str = "put a plain file there") -> BinaryIO:
    """Open a plain file to read; a pipe, socket or device is refused at once, since reading it may wait for ever.

    Raises:
        UnreadableFileError: It is no plain file.
        OSError: It is missing or cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise UnreadableFileError(f"{path}: expected a plain file, found a folder, pipe or device; {advice}.")
    return os.fdopen(descriptor, "rb")


def read_plain(path: Path, max_bytes: int = MAX_FILE_BYTES, advice: str = "put a plain file there") -> bytes:
    """Return the content of a plain file.

    Raises:
        UnreadableFileError: It is no plain file, or larger than `max_bytes`.
        OSError: It is missing or cannot be read.
    """
    with open_plain(path, advice) as file:
        # `read` takes memory for all bytes that it is asked for.
        content = file.read(min(max_bytes, os.fstat(file.fileno()).st_size) + 1)
    if len(content) > max_bytes:
        raise UnreadableFileError(f"{path}: expected at most {max_bytes:,} bytes; use another copy.")
    return content


def read_json(path: Path, max_bytes: int = MAX_FILE_BYTES) -> dict[str, Any]:
    """Return the mapping that a JSON file holds.

    Raises:
        UnreadableFileError: It is no plain file, too large, nested too deeply, not JSON or not a mapping.
        OSError: It is missing or cannot be read.
    """
    content = read_plain(path, max_bytes)
    try:
        value = parse_json(content)
    except ValueError as error:
        raise UnreadableFileError(f"{path}: {error}") from None
    if not isinstance(value, dict):
        raise UnreadableFileError(f"{path}: expected a mapping of fields, got {shown(value)}.")
    return value


def parse_json(content: bytes | str, *, takes_last: bool = False) -> Any:  # noqa: ANN401 - any JSON value
    """Return a JSON value with at most `MAX_DEPTH` levels; with `takes_last`, the last field of a name counts.

    Raises:
        UnreadableFileError: It is not JSON, nested more deeply, has a field twice, or a number of too many digits.
    """
    encoded = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
    try:
        value = json.loads(content, object_pairs_hook=None if takes_last else _with_each_once)
        if not _is_shallow(encoded) and _is_deep(value):
            raise RecursionError
    except RecursionError:
        raise UnreadableFileError(f"expected JSON of at most {MAX_DEPTH} levels.") from None
    except UnreadableFileError:
        raise
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UnreadableFileError(f"is not JSON ({error}).") from None
    except ValueError:  # of `int`
        raise UnreadableFileError(f"{LONG_NUMBER}.") from None
    return value


def _with_each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise UnreadableFileError(f"has the field {shown(twice)} twice; keep one of them.")
    return fields


def _is_shallow(content: bytes) -> bool:
    """Whether the brackets alone show that the depth is small: each round removes the innermost level."""
    brackets = content.translate(None, _OTHERS)
    for _ in range(MAX_DEPTH):
        if not brackets:
            return True
        brackets = brackets.replace(b"[]", b"").replace(b"{}", b"")
    return not brackets


def _is_deep(value: object) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH):
        level = [
            child
            for item in level
            if isinstance(item, dict | list)
            for child in (item.values() if isinstance(item, dict) else item)
        ]
        if not level:
            return False
    return any(isinstance(item, dict | list) for item in level)


_CRC_FIELD = re.compile(rb',"crc":(\d{1,10})}\s*\Z')


def seal(content: bytes) -> bytes:
    """Return a JSON mapping, which has a field and no white space at its end, with its checksum."""
    return content[:-1] + b',"crc":%d}' % crc32(content)


def unseal(content: bytes) -> dict[str, Any]:
    """Return the mapping without its checksum.

    Raises:
        UnreadableFileError: It differs from what was written.
    """
    match = _CRC_FIELD.search(content)
    body = content if match is None else content[: match.start()] + b"}"
    if match is not None and crc32(body) != int(match[1]):
        raise UnreadableFileError("differs from what was written (checksum).")
    value = parse_json(body)
    if not isinstance(value, dict):
        raise UnreadableFileError(f"expected a mapping of fields, got {shown(value)}.")
    if match is None:
        raise UnreadableFileError("differs from what was written (no checksum).")
    return value


def file_crc(path: Path) -> int:
    """Return the CRC-32 of a plain file."""
    value = 0
    with open_plain(path) as file:
        while block := file.read(1 << 20):
            value = crc32(block, value)
    return value
