"""Checksums of files, and texts that carry their own: no changed byte is read as if it were meant.

JSON has it as the last field: `{"a": 1}` becomes `{"a": 1,"crc":N}`; N is the CRC-32 of the text without that field.
YAML has it in a first line, a comment.
"""

import re
from pathlib import Path
from typing import Any
from zlib import crc32

from exgrpo_core.bounded_json import UnreadableFileError, open_plain, parse_json, read_plain

_CRC_FIELD = re.compile(rb',"crc":(\d{1,10})}\s*\Z')
_CRC_LINE = re.compile(rb"# crc (\d{1,10})")


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
        raise UnreadableFileError(f"expected a mapping of fields, got {type(value).__name__}.")
    if match is None:
        raise UnreadableFileError("differs from what was written (no checksum).")
    return value


def read_sealed(path: Path) -> dict[str, Any]:
    """Return the mapping in a file without its checksum; see `unseal`.

    Raises:
        UnreadableFileError: It differs from what was written; names the file.
        OSError: It is missing or cannot be read.
    """
    content = read_plain(path)
    try:
        return unseal(content)
    except UnreadableFileError as error:
        raise UnreadableFileError(f"{path}: {error}") from None


def seal_yaml(text: str) -> str:
    """Return YAML below a line with its checksum."""
    body = f"\n{text}"
    return f"# crc {crc32(body.encode())}{body}"


def is_intact_yaml(content: bytes) -> bool:
    """Return whether YAML has its checksum or, as users write it, none."""
    match = _CRC_LINE.match(content)
    return match is None or crc32(content[match.end() :]) == int(match[1])


def file_crc(path: Path) -> int:
    """Return the CRC-32 of a plain file."""
    value = 0
    with open_plain(path) as file:
        while block := file.read(1 << 20):
            value = crc32(block, value)
    return value
