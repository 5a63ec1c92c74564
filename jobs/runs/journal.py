"""Requests of users, one JSON line each: with the run directories, all that the workbench must keep."""

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

from exgrpo_core.durable_files import append_line
from jobs.runs.directory import WORKBENCH_FOLDER

logger = logging.getLogger(__name__)

JOURNAL_FILE = "journal.jsonl"
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


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry; `data` of `submitted` and `resume_asked` has the requested attempt."""

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
        line = json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        append_line(self.path, line)
        return entry

    def read_from(self, offset: int = 0) -> tuple[list[JournalEntry], int]:
        """Return the whole entries after byte `offset` and the offset to continue from."""
        try:
            with self.path.open("rb") as file:
                file.seek(offset)
                content = file.read()
        except FileNotFoundError:
            return [], 0
        whole = content[: content.rfind(b"\n") + 1]
        return list(self._parse(whole)), offset + len(whole)

    def entries(self) -> list[JournalEntry]:
        """Return every entry, oldest first."""
        return self.read_from(0)[0]

    def _parse(self, content: bytes) -> Iterator[JournalEntry]:
        for line in content.splitlines():
            try:
                record = json.loads(line)
                kind, by = JournalKind(record["kind"]), str(record.get("by", ""))
                yield JournalEntry(record["at"], kind, record["run_id"], dict(record["data"]), by)
            except (ValueError, KeyError, TypeError):
                logger.warning("%s: skipped a line that is not an entry: %.80r", self.path, line)
