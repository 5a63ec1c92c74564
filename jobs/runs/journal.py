"""Requests of users, one JSON line each: with the run directories, all that the workbench must keep."""

import contextlib
import getpass
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from exgrpo_core.bounded_json import UnreadableFileError, open_plain, read_plain
from exgrpo_core.checksums import seal, unseal
from exgrpo_core.durable_files import appending, write_whole
from jobs.runs.directory import WORKBENCH_FOLDER
from jobs.runs.numbered_lines import describe_missing, find_gaps

logger = logging.getLogger(__name__)

JOURNAL_FILE = "journal.jsonl"
COUNT_FILE = "journal-count.json"
_OLD_FIELDS = frozenset({"at", "kind", "run_id", "data"})
"""Those of older versions, which wrote no checksum, and some of them `by`."""
_TAIL_BYTES = 1 << 16
"""More than the size of an entry."""
_actor: ContextVar[str] = ContextVar("actor", default="")


class JournalKind(StrEnum):
    """Kind of a request."""

    SUBMITTED = "submitted"
    RESUME_ASKED = "resume_asked"
    STOP_ASKED = "stop_asked"
    TAGGED = "tagged"
    UNTAGGED = "untagged"
    NOTED = "noted"
    ARCHIVED = "archived"
    UNARCHIVED = "unarchived"
    RENAMED = "renamed"
    DELETED = "deleted"
    RESTORED = "restored"
    REMOVED = "removed"
    IMPORTED = "imported"
    CASE_MARKED = "case_marked"
    CASE_UNMARKED = "case_unmarked"
    VERDICT_SET = "verdict_set"
    VERDICT_CLEARED = "verdict_cleared"
    TRAJECTORY_MARKED = "trajectory_marked"
    TRAJECTORY_UNMARKED = "trajectory_unmarked"
    CLUSTER_ADDED = "cluster_added"
    CLUSTER_TESTED = "cluster_tested"
    CLUSTER_REMOVED = "cluster_removed"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry; `data` of `submitted` and `resume_asked` has the requested attempt. `run_id` is "" for clusters."""

    at: str
    kind: JournalKind
    run_id: str
    data: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    """Who asked: a signed-in person, the link's holder, or a user of this machine; "" in journals without it."""


@contextmanager
def acting_as(name: str) -> Iterator[None]:
    """Record `name` as the user of entries that this thread appends within the block."""
    before = _actor.set(name)
    try:
        yield
    finally:
        _actor.reset(before)


def _user_here() -> str:
    try:
        return f"{getpass.getuser()} on this machine"
    except (OSError, KeyError):
        return f"user {os.getuid()} on this machine"


class Journal:
    """Append-only file that any process may write; an appended entry survives a power cut.

    Appends of several processes never mix. Readers skip an incomplete last line, left by a writer that died; the next
    writer ends it.
    """

    def __init__(self, runs_root: Path) -> None:
        self.runs_root = runs_root
        self.path = runs_root / WORKBENCH_FOLDER / JOURNAL_FILE

    def append(self, kind: JournalKind, run_id: str, **data: object) -> JournalEntry:
        """Write one entry and return it once it is on disk."""
        at, by = datetime.now(UTC).isoformat(timespec="milliseconds"), _actor.get() or _user_here()
        entry = JournalEntry(at, kind, run_id, dict(data), by)
        record = {"at": at, "kind": entry.kind.value, "run_id": run_id, "data": entry.data, "by": by}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with appending(self.path) as append:
            counted = 0
            with contextlib.suppress(UnreadableFileError):
                counted = self._counted()
            number = max(counted, self._last_number()) + 1
            line = json.dumps({"seq": number} | record, ensure_ascii=False, default=str)
            append(seal(line.encode("utf-8", "backslashreplace")))
            with contextlib.suppress(OSError):  # the entry itself is on disk, and its number is read from there
                write_whole(self._count_path, seal(json.dumps({"num_entries": number}).encode()), is_durable=False)
        return entry

    def read_from(self, offset: int = 0) -> tuple[list[JournalEntry], int]:
        """Return the whole entries after byte `offset` and the offset to continue from."""
        try:
            with open_plain(self.path) as file:
                file.seek(offset)
                content = file.read()
        except FileNotFoundError:
            return [], 0
        whole = content[: content.rfind(b"\n") + 1]
        return list(self._parse(whole)), offset + len(whole)

    def entries(self) -> list[JournalEntry]:
        """Return every entry, oldest first."""
        return self.read_from(0)[0]

    def find_damage(self) -> list[str]:
        """Return a sentence for each part of the journal that is damaged or missing."""
        records = (_unsealed(line) for line in self._content().split(b"\n")[:-1])
        faults, last = find_gaps(JOURNAL_FILE, records, "entry")
        try:
            counted = self._counted()
        except UnreadableFileError as error:
            return [*faults, str(error)]
        if counted > last:
            faults.append(f"{JOURNAL_FILE}: {describe_missing('entry', last + 1, counted)} at the end.")
        return faults

    @property
    def _count_path(self) -> Path:
        """A file with the number of the last entry, by which a cut at a line's end is noticed."""
        return self.path.with_name(COUNT_FILE)

    def _counted(self) -> int:
        """Return the number of the last entry as the file beside the journal has it, 0 without that file."""
        try:
            return int(unseal(read_plain(self._count_path))["num_entries"])
        except FileNotFoundError:
            return 0
        except (KeyError, TypeError, ValueError):
            raise UnreadableFileError(f"{COUNT_FILE}: is damaged; the next entry of the journal repairs it.") from None

    def _content(self) -> bytes:
        try:
            with open_plain(self.path) as file:
                return file.read()
        except FileNotFoundError:
            return b""

    def _last_number(self) -> int:
        with open_plain(self.path) as file:
            file.seek(max(0, self.path.stat().st_size - _TAIL_BYTES))
            lines = file.read().split(b"\n")
        numbers = [record.get("seq", 0) for line in lines if (record := _unsealed(line))]
        return max(numbers, default=0)

    def _parse(self, content: bytes) -> Iterator[JournalEntry]:
        for line in content.split(b"\n")[:-1]:
            record = _unsealed(line)
            try:
                if record is None:
                    raise ValueError
                kind, by = JournalKind(record["kind"]), str(record.get("by", ""))
                yield JournalEntry(str(record["at"]), kind, str(record["run_id"]), dict(record["data"]), by)
            except (ValueError, KeyError, TypeError):
                logger.warning("%s: skipped a line that is not an entry: %.80r", self.path, line)


def _unsealed(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, None of one that is damaged; a number is whole and not negative."""
    try:
        record = unseal(line, _OLD_FIELDS, _OLD_FIELDS | {"by"})
    except UnreadableFileError:
        return None
    return record if isinstance(record.get("seq", 0), int) else None
