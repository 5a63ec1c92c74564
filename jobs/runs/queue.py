"""Which runs wait for a worker, by the journal."""

from collections.abc import Iterable

from jobs.runs.journal import JournalEntry, JournalKind

_REQUESTS = frozenset({JournalKind.SUBMITTED, JournalKind.RESUME_ASKED})


def asked_attempts(entries: Iterable[JournalEntry]) -> dict[str, int]:
    """Return the newest requested attempt of each run, in the order of requests."""
    requested: dict[str, int] = {}
    for entry in entries:
        add_request(requested, entry)
    return requested


def add_request(requested: dict[str, int], entry: JournalEntry) -> bool:
    """Add the attempt that an entry requests, as the last; return whether it is at least as new as the run's others."""
    attempt = entry.data.get("attempt")
    if entry.kind not in _REQUESTS or not isinstance(attempt, int) or attempt < requested.get(entry.run_id, 0):
        return False
    requested.pop(entry.run_id, None)
    requested[entry.run_id] = attempt
    return True
