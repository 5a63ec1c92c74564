"""Which runs wait for a worker, by the journal."""

from collections.abc import Iterable

from jobs.runs.journal import JournalEntry, JournalKind

_ASKS = frozenset({JournalKind.SUBMITTED, JournalKind.RESUME_ASKED})


def asked_attempts(entries: Iterable[JournalEntry]) -> dict[str, int]:
    """Return for each run the newest attempt that users asked for, in the order in which they asked for it."""
    asked: dict[str, int] = {}
    for entry in entries:
        attempt = entry.data.get("attempt")
        if entry.kind in _ASKS and isinstance(attempt, int) and attempt >= asked.get(entry.run_id, 0):
            asked.pop(entry.run_id, None)
            asked[entry.run_id] = attempt
    return asked
