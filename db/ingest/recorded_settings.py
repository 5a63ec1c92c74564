"""What events say of a job whose specification cannot be read: its kind, and K of a training run."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from db.rows.unreadable_specs import is_unreadable
from db.tables import models
from exgrpo_core.config import MAX_ROLLOUTS

_KINDS = {
    **dict.fromkeys(("questions", "step", "evaluation", "checkpoint"), "train"),
    "benchmark": "eval",
    **dict.fromkeys(("judging", "asked", "votes"), "judge"),
}


def record_settings(connection: Connection, run_key: int, events: Sequence[Mapping[str, Any]]) -> None:
    """Add the kind and K to the placeholder of a specification that cannot be read; others stay unchanged."""
    runs = models.runs
    spec: dict[str, Any] = connection.scalars(select(runs.c.spec).where(runs.c.run_key == run_key)).one()
    if not is_unreadable(spec):
        return
    kinds = [_KINDS[event["kind"]] for event in events if event["kind"] in _KINDS]
    found: dict[str, Any] = {"kind": kinds[0]} if kinds else {}
    known: dict[str, int] = spec.get("algorithm", {})
    num_rollouts = max(_group_sizes(events), default=0)
    # A group may lack rollouts that failed.
    if max(2, known.get("rollouts_per_question", 0)) <= num_rollouts <= MAX_ROLLOUTS:
        found["algorithm"] = {"rollouts_per_question": num_rollouts}
    if found:
        connection.execute(update(runs).where(runs.c.run_key == run_key).values(spec=spec | found))


def _group_sizes(events: Sequence[Mapping[str, Any]]) -> Iterator[int]:
    for event in events:
        if event["kind"] == "step":
            yield from Counter(trajectory["group_position"] for trajectory in event["trajectories"]).values()
