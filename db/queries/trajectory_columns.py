"""The facts of trajectories as columns, and which trajectories fit: every condition but the words of a search."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, select

from db import models
from db.event_rows import trajectory_key
from db.trajectory_blocks import FACTS, IDS, NONE, VERDICTS
from db.trajectory_rows import TrajectoryFacets

Mask = npt.NDArray[np.bool_]
NO_RUN = 0
"""The key of no run; they count from 1."""
FLAGS = ("is_correct", "is_replayed", "has_code", "is_valid")
_EXACT = ("question_index", "bucket", "verdict", *FLAGS)
_RANGES = {"mean_entropy": ("entropy_from", "entropy_to"), "num_tokens": ("tokens_from", "tokens_to")}


@dataclass(frozen=True, slots=True)
class TrajectoryColumns:
    """The trajectories that count of some steps of a run, or of all runs; `keys` are their trajectory keys."""

    keys: npt.NDArray[np.int64]
    facts: npt.NDArray[np.void]
    is_replayed: Mask

    def column(self, name: str) -> npt.NDArray[Any]:
        """Return a fact of all trajectories, as numbers: of a verdict its place in `VERDICTS`, of a flag 0 or 1."""
        return self.is_replayed if name == "is_replayed" else self.facts[name]

    def only(self, wanted: Mask) -> "TrajectoryColumns":
        """Return these trajectories alone."""
        return TrajectoryColumns(self.keys[wanted], self.facts[wanted], self.is_replayed[wanted])

    def fitting(self, facets: TrajectoryFacets, without: str | None = None) -> Mask:
        """Return which trajectories fit, all conditions but the words taken; `without` leaves one facet out."""
        fits = np.ones(len(self.keys), dtype=np.bool_)
        for name in _EXACT:
            value = getattr(facets, name)
            if value is not None and name != without:
                fits &= self.column(name) == code_of(name, value)
        for name, (low_name, high_name) in _RANGES.items():
            low, high = getattr(facets, low_name), getattr(facets, high_name)
            if low is not None:
                fits &= self.facts[name] >= low
            if high is not None:
                fits &= self.facts[name] <= high
        return fits


def read_columns(
    connection: Connection, run_key: int | None, step_from: int | None = None, step_to: int | None = None
) -> TrajectoryColumns:
    """Return the facts of the trajectories of a run, or of all, born in these steps."""
    blocks = models.trajectory_blocks
    is_wanted = [~blocks.c.is_superseded] + ([blocks.c.run_key == run_key] if run_key is not None else [])
    replayed = select(blocks.c.run_key, blocks.c.replayed).where(*is_wanted).order_by(blocks.c.run_key)
    is_in_steps = [blocks.c.step >= step_from] if step_from is not None else []
    is_in_steps += [blocks.c.step <= step_to] if step_to is not None else []
    packed = (
        select(blocks.c.run_key, blocks.c.attempt, blocks.c.facts)
        .where(*is_wanted, *is_in_steps)
        .order_by(blocks.c.run_key, blocks.c.step, blocks.c.attempt)
    )
    rows = connection.execute(packed).all()
    facts = np.frombuffer(b"".join(row.facts for row in rows), dtype=FACTS)
    counts = np.array([len(row.facts) // FACTS.itemsize for row in rows], dtype=np.int64)
    bases = np.array([trajectory_key(row.run_key, row.attempt, 0) for row in rows], dtype=np.int64)
    keys = np.repeat(bases, counts) + facts["trajectory_id"]
    run_keys = np.repeat(np.array([row.run_key for row in rows], dtype=np.int64), counts)
    return TrajectoryColumns(keys, facts, _were_replayed(run_keys, facts, connection.execute(replayed).all()))


def code_of(name: str, value: Any) -> Any:  # noqa: ANN401 - whatever the facet holds
    """Return how a column holds a facet's value."""
    if name == "verdict":
        return VERDICTS.index(value) if value in VERDICTS else NONE - 1
    return value


def _were_replayed(run_keys: npt.NDArray[np.int64], facts: npt.NDArray[np.void], rows: Sequence[Any]) -> Mask:
    """Return which trajectories were ever replayed in their run; both are in order of runs."""
    found = np.zeros(len(facts), dtype=np.bool_)
    for run_key, packed in _by_run(rows):
        ids = np.frombuffer(packed, dtype=IDS)
        if ids.size:
            own = slice(*np.searchsorted(run_keys, [run_key, run_key + 1]))
            found[own] = np.isin(facts["trajectory_id"][own], ids)
    return found


def _by_run(rows: Sequence[Any]) -> Iterable[tuple[int, bytes]]:
    packed: dict[int, list[bytes]] = {}
    for row in rows:
        packed.setdefault(row.run_key, []).append(row.replayed)
    return ((run_key, b"".join(parts)) for run_key, parts in packed.items())
