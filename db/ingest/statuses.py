"""How far along a run or an attempt is, by its status."""

ENDED_STATUSES = frozenset({"stopped", "succeeded", "failed", "lost"})
_RANKS = {"queued": 0, "starting": 1, "running": 2, "stopping": 3}
_ENDED_RANK = 4


def status_rank(status: str) -> int:
    """Return how far along a status is within one attempt."""
    return _RANKS.get(status, _ENDED_RANK)
