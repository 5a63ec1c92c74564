"""Requests of users, one JSON line each: with the run directories, all that the workbench must keep."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from itertools import accumulate
from pathlib import Path
from typing import Any

from exgrpo.jobs.runs.directory import WORKBENCH_FOLDER, RunDirectory, warn_once
from exgrpo.jobs.runs.people import acting_person
from exgrpo.jobs.specs.base import SpecError
from exgrpo.jobs.specs.evaluation import EvalSpec
from exgrpo.jobs.specs.train import TrainSpec
from exgrpo_core.bounded_json import UnreadableFileError, open_plain, seal, unseal
from exgrpo_core.durable_files import appending
from exgrpo_core.faults import Fault, FaultKind

logger = logging.getLogger(__name__)

JOURNAL_FILE = "journal.jsonl"


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
    SHUT_DOWN = "shut_down"


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One entry; `data` of `submitted` and `resume_asked` has the requested attempt, `run_id` is "" where of none."""

    at: str
    kind: JournalKind
    run_id: str
    data: dict[str, Any] = field(default_factory=dict)
    by: str = ""
    """Who asked: a signed-in person, the link's holder, or a user of this machine."""


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
        at = datetime.now(UTC).isoformat(timespec="milliseconds")
        by = person.name if (person := acting_person()) else ""
        entry = JournalEntry(at, kind, run_id, dict(data), by)
        record = {"at": at, "kind": entry.kind.value, "run_id": run_id, "data": entry.data, "by": by}
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with appending(self.path) as append:
            append(seal(json.dumps(record, ensure_ascii=False, default=str).encode("utf-8", "backslashreplace")))
        return entry

    def read_from(self, offset: int = 0) -> tuple[list[JournalEntry], int]:
        """Return the whole entries after byte `offset` and the offset to continue from."""
        try:
            with open_plain(self.path) as file:
                file.seek(offset)
                content = file.read()
        except FileNotFoundError:
            return [], 0
        except OSError as error:
            why = error.strerror or str(error)
            warn_once(f"{self.path}: cannot be read ({why}): no names, tags and notes until this user may read it.")
            return [], offset
        whole = content[: content.rfind(b"\n") + 1]
        return list(self._parse(whole)), offset + len(whole)

    def entries(self) -> list[JournalEntry]:
        """Return every entry, oldest first."""
        return self.read_from(0)[0]

    def find_damage(self) -> list[Fault]:
        """Return each line that is damaged; lines that are gone are not missed."""
        name = f"{WORKBENCH_FOLDER}/{JOURNAL_FILE}"
        try:
            with open_plain(self.path) as file:
                lines = file.read().split(b"\n")[:-1]
        except FileNotFoundError:
            return []
        except OSError as error:
            return [Fault(FaultKind.UNREADABLE, name, details=error.strerror or str(error))]
        starts = accumulate((len(line) + 1 for line in lines), initial=0)
        return [
            Fault(FaultKind.DAMAGED_LINE, name, (start,))
            for start, line in zip(starts, lines, strict=False)
            if _unsealed(line) is None
        ]

    def _parse(self, content: bytes) -> Iterator[JournalEntry]:
        for line in content.split(b"\n")[:-1]:
            record = _unsealed(line)
            try:
                if record is None:
                    raise ValueError
                kind, by = JournalKind(record["kind"]), str(record["by"])
                yield JournalEntry(str(record["at"]), kind, str(record["run_id"]), dict(record["data"]), by)
            except (ValueError, KeyError, TypeError):
                logger.warning("%s: skipped a line that is not an entry: %.80r", self.path, line)


def _unsealed(line: bytes) -> dict[str, Any] | None:
    """Return the record of a line, None of one that is damaged."""
    try:
        return unseal(line)
    except UnreadableFileError:
        return None


_REQUESTS = frozenset({JournalKind.SUBMITTED, JournalKind.RESUME_ASKED})


def add_request(requested: dict[str, int], entry: JournalEntry) -> bool:
    """Add the attempt that an entry requests, as the last; return whether it is at least as new as the run's others."""
    attempt = entry.data.get("attempt")
    if entry.kind not in _REQUESTS or not isinstance(attempt, int) or attempt < requested.get(entry.run_id, 0):
        return False
    requested.pop(entry.run_id, None)
    requested[entry.run_id] = attempt
    return True


def request_resume(run: RunDirectory, attempt: int) -> None:
    """Request an attempt of a run that has ended."""
    run.clear_stop()
    Journal(run.path.parent).append(JournalKind.RESUME_ASKED, run.run_id, attempt=attempt)
    run.request_attempt(attempt)


def waited_for(run: RunDirectory) -> str | None:
    """Return the id of the job that this one waits for: none once it keeps the model of that one.

    The same where its specification cannot be read.
    """
    try:
        spec = run.job_spec()
    except SpecError:
        return None  # the worker itself says what is wrong
    if not isinstance(spec, TrainSpec | EvalSpec):
        return None
    has_begun = run.keeps_model and spec.model.source.startswith(f"{spec.waits_for}@")
    return None if has_begun else spec.waits_for
