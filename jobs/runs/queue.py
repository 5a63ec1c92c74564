"""Which runs wait for a worker, by the journal."""

from collections.abc import Iterable

from jobs.runs.journal import JournalEntry, JournalKind

_ASKS = frozenset({JournalKind.SUBMITTED, JournalKind.RESUME_ASKED})


def asked_attempts(entries: Iterable[JournalEntry]) -> dict[str, int]:
    """Return for each run the newest attempt that users asked for, in the order in which they asked for it."""
    asked: dict[str, int] = {}
    for entry in entries:
        add_request(asked, entry)
    return asked


def add_request(asked: dict[str, int], entry: JournalEntry) -> bool:
    """Add what an entry asks for to the attempts asked for, last; tell whether it asks for one at least as new."""
    attempt = entry.data.get("attempt")
    if entry.kind not in _ASKS or not isinstance(attempt, int) or attempt < asked.get(entry.run_id, 0):
        return False
    asked.pop(entry.run_id, None)
    asked[entry.run_id] = attempt
    return True
