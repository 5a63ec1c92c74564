"""The order of statuses within an attempt."""

ENDED_STATUSES = frozenset({"stopped", "finished", "failed", "lost"})
_RANKS = {"queued": 0, "starting": 1, "running": 2, "stopping": 3}
_ENDED_RANK = 4


def status_rank(status: str) -> int:
    """Return the rank of a status in the order of an attempt's life."""
    return _RANKS.get(status, _ENDED_RANK)
