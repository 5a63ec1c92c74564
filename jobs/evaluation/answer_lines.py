"""One file of an answer log: numbered lines with checksums, and beside it a file with the number of the last line.

Files of older versions have neither; of them only what is no longer a line of answers is noticed.
"""

import contextlib
import json
from collections.abc import Iterator, Mapping
from itertools import takewhile
from pathlib import Path
from typing import Any, BinaryIO

from exgrpo_core.bounded_json import UnreadableFileError, open_plain, read_plain
from exgrpo_core.checksums import seal, unseal
from exgrpo_core.durable_files import write_whole
from jobs.runs.numbered_lines import describe_missing, find_gaps

_OLDEST_FIELDS = frozenset({"question_id", "seed", "grader_version", "samples", "outcomes"})
_OLDER_FIELDS = _OLDEST_FIELDS | {"question", "gold"}
_OLD_FIELDS = _OLDER_FIELDS | {"answer_kind"}
_MAX_LINE_BYTES = 256 << 20
"""A longer line, which no question needs, counts as damaged."""


def encode_line(number: int, record: Mapping[str, Any]) -> bytes:
    """Return the line of a finished question, newline included; numbers begin with 1 in each file."""
    return seal(json.dumps({"seq": number} | dict(record)).encode()) + b"\n"


def write_count(path: Path, number: int) -> None:
    """Say beside the file that it has lines up to this number."""
    write_whole(_count_path(path), seal(json.dumps({"num_lines": number}).encode()), is_durable=False)


def read_lines(path: Path, marker: bytes = b"") -> Iterator[dict[str, Any]]:
    """Yield the content of whole lines, none without the file; lines without `marker` are not parsed."""
    with contextlib.suppress(FileNotFoundError), open_plain(path) as file:
        for line in _lines(file):
            record = _decode(line) if marker in line else None
            if record is not None:
                yield record


def find_damage(path: Path) -> list[str]:
    """Return a sentence on each part of a file that is damaged or missing; a last line cut by a kill is neither."""
    try:
        counted = _counted(path)
        with open_plain(path) as file:
            whole = takewhile(lambda line: line.endswith(b"\n"), _lines(file))
            faults, last = find_gaps(path.name, map(_decode, whole), "line")
    except FileNotFoundError:
        return [f"{path.name}: is missing."]
    except (OSError, UnreadableFileError) as error:
        return [f"{path.name}: cannot be read ({str(error).removeprefix(f'{path}: ').rstrip('.')})."]
    if counted > last:
        faults.append(f"{path.name}: {describe_missing('line', last + 1, counted)} at the end.")
    return faults


def list_files(folder: Path, benchmark: str) -> list[Path]:
    """Return the files of a benchmark (`*`: of all), older attempts first; also one that only its count is left of."""
    names = [*folder.glob(f"{benchmark}-*.jsonl"), *folder.glob(f"{benchmark}-*.count")]
    return sorted({path.with_suffix(".jsonl") for path in names})


def last_number(path: Path) -> int:
    """Return the number of a file's last line, 0 without the file or where lines have no numbers."""
    return max((record.get("seq", 0) for record in read_lines(path)), default=0)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    return iter(lambda: file.readline(_MAX_LINE_BYTES), b"")


def _decode(line: bytes) -> dict[str, Any] | None:
    """Return the content of a whole line, None of one that is damaged."""
    try:
        record = unseal(line[:-1], _OLD_FIELDS, _OLDER_FIELDS, _OLDEST_FIELDS) if line.endswith(b"\n") else None
    except UnreadableFileError:
        return None
    return record if record is not None and isinstance(record.get("seq", 0), int) else None


def _count_path(path: Path) -> Path:
    return path.with_suffix(".count")


def _counted(path: Path) -> int:
    try:
        return int(unseal(read_plain(_count_path(path)))["num_lines"])
    except FileNotFoundError:
        return 0
    except (KeyError, TypeError, ValueError):
        raise UnreadableFileError(f"{_count_path(path).name} is damaged") from None
