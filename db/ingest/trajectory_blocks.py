"""The facts that lists of trajectories filter by, packed step by step.

A list may be filtered by any combination of facts, and each value of each facet shows its count. No index serves all
of that; a scan of a million trajectories does, if their facts are packed side by side. A block never changes: later
replays of a trajectory are kept with the step of the replay.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from sqlalchemy import RowMapping

INSERTED = "inserted"
"""The kind of buffer change by which a trajectory is stored."""
VERDICTS = ("correct", "wrong", "unparsed", "timeout", "crash")
NONE = -1
"""A fact that is not known: no verdict on validity, never stored."""
FACTS = np.dtype(
    [
        ("trajectory_id", "<u4"),
        ("question_index", "<i4"),
        ("num_tokens", "<i4"),
        ("mean_entropy", "<f8"),
        ("bucket", "<i2"),
        ("verdict", "i1"),
        ("is_correct", "i1"),
        ("is_valid", "i1"),
        ("has_code", "i1"),
    ]
)
"""One trajectory; `bucket` is its question's when it was stored, `verdict` an index of `VERDICTS`, flags are 0 or 1."""
IDS = np.dtype("<u4")
_CODES = {verdict: code for code, verdict in enumerate(VERDICTS)}


def pack_facts(rows: Iterable[Mapping[str, Any] | RowMapping], buckets: Mapping[int, int]) -> bytes:
    """Return the facts of trajectories, given as in their table; `buckets` has the bucket of stored ones."""
    return np.array(sorted(_facts(row, buckets) for row in rows), dtype=FACTS).tobytes()


def pack_ids(trajectory_ids: Iterable[int]) -> bytes:
    """Return packed ids of trajectories of the run; external ones have ids below 0 and are left out."""
    return np.fromiter(trajectory_ids, dtype=IDS).tobytes()


def _facts(row: Mapping[str, Any] | RowMapping, buckets: Mapping[int, int]) -> tuple[Any, ...]:
    entropy = row["mean_entropy"]
    return (
        row["trajectory_id"],
        row["question_index"],
        row["num_tokens"],
        np.nan if entropy is None else entropy,
        buckets.get(row["trajectory_id"], NONE),
        _CODES.get(row["verdict"], NONE),
        row["reward"] >= 1.0,
        NONE if row["is_valid"] is None else row["is_valid"],
        NONE if row["has_code"] is None else row["has_code"],
    )
