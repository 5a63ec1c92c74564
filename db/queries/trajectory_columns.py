"""The facts of trajectories as columns, and which trajectories match: every condition except the words of a search."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, Double, Engine, func, select, type_coerce

from db.ingest.conversations import COUNTS
from db.ingest.event_rows import FACTS, IDS, NONE, trajectory_key
from db.queries.text_search import Keys, all_matching
from db.rows.trajectories import TrajectoryFacets
from db.tables import models
from db.tables.correctness import VERDICTS

Mask = npt.NDArray[np.bool_]
FLAGS = ("is_correct", "is_replayed", "has_code", "is_valid", "has_tool_errors")
_EXACT = ("question_index", "bucket", "verdict", *FLAGS)
_RANGES = {
    "step": ("step_from", "step_to"),
    "mean_entropy": ("entropy_from", "entropy_to"),
    "reward": ("reward_from", "reward_to"),
    "num_tokens": ("tokens_from", "tokens_to"),
    "num_turns": ("turns_from", "turns_to"),
}
MAX_RUNS = 3
"""Each takes about 60 bytes per trajectory, and as much again for each search."""
MAX_SEARCHES = 3
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_RunKey = tuple[str, int]
_Version = tuple[int, int, int]
_lock = Lock()


@dataclass(frozen=True, slots=True)
class TrajectoryColumns:
    """The trajectories of a run or of all runs, in order of their keys.

    A column has one fact of all of them as numbers: a verdict's index in `VERDICTS`, 0 or 1 for a flag, `NONE` for an
    unknown value.
    """

    keys: Keys
    columns: dict[str, npt.NDArray[Any]]

    def only(self, wanted: Mask) -> "TrajectoryColumns":
        """Return these trajectories only."""
        return TrajectoryColumns(self.keys[wanted], {name: values[wanted] for name, values in self.columns.items()})

    def fitting(self, facets: TrajectoryFacets, without: str | None = None) -> Mask:
        """Return which trajectories match all conditions except the words; `without` leaves one facet out."""
        fits = np.ones(len(self.keys), dtype=np.bool_)
        for name in _EXACT:
            value = getattr(facets, name)
            if value is not None and name != without:
                fits &= self.columns[name] == code_of(name, value)
        for name, (low_name, high_name) in _RANGES.items():
            low, high = getattr(facets, low_name), getattr(facets, high_name)
            values = self.columns[name]
            if low is not None:
                fits &= values >= low
            if high is not None:
                fits &= (values <= high) & (values.dtype.kind == "f" or values != NONE)
        return fits

    def holding(self, keys: Keys) -> Mask:
        """Return which trajectories have one of the keys."""
        positions = np.searchsorted(self.keys, keys)
        is_known = positions < len(self.keys)
        is_known[is_known] = self.keys[positions[is_known]] == keys[is_known]
        has_key = np.zeros(len(self.keys), dtype=np.bool_)
        has_key[positions[is_known]] = True
        return has_key


def read_columns(connection: Connection, run_key: int | None) -> TrajectoryColumns:
    """Return the facts of the trajectories of a run, or of all."""
    blocks = models.trajectory_blocks
    names = ("run_key", "attempt", "step", "facts", "replayed", "conversations")
    query = select(*(blocks.c[name] for name in names))
    if run_key is not None:
        query = query.where(blocks.c.run_key == run_key)
    rows = connection.execute(query.order_by(blocks.c.run_key, blocks.c.step, blocks.c.attempt)).all()
    facts = np.frombuffer(b"".join(row.facts for row in rows), dtype=FACTS)
    counts = np.array([len(row.facts) // FACTS.itemsize for row in rows], dtype=np.int64)
    bases = np.array([trajectory_key(row.run_key, row.attempt, 0) for row in rows], dtype=np.int64)
    columns = {name: np.ascontiguousarray(facts[name]) for name in FACTS.names or ()}
    columns["step"] = np.repeat(np.array([row.step for row in rows], dtype=np.int32), counts)
    columns["num_replays"] = _replay_counts(rows, counts, columns["trajectory_id"])
    columns["is_replayed"] = columns["num_replays"] > 0
    columns |= _conversation_columns(rows, counts)
    keys = np.repeat(bases, counts) + columns["trajectory_id"]
    if not np.all(keys[1:] > keys[:-1]):
        order = np.argsort(keys)
        keys, columns = keys[order], {name: values[order] for name, values in columns.items()}
    return TrajectoryColumns(keys, columns)


def code_of(name: str, value: Any) -> Any:  # noqa: ANN401 - any facet's value
    """Return a facet's value as its column has it."""
    if name == "verdict":
        return VERDICTS.index(value) if value in VERDICTS else NONE - 1
    return value


def _conversation_columns(rows: Sequence[Any], counts: npt.NDArray[np.int64]) -> dict[str, npt.NDArray[Any]]:
    empty = (bytes(int(count) * COUNTS.itemsize) for count in counts)
    packed = b"".join(row.conversations or zeros for row, zeros in zip(rows, empty, strict=True))
    values = np.frombuffer(packed, dtype=COUNTS)
    has_errors = np.where(values["num_tool_calls"] > 0, values["num_tool_errors"] > 0, NONE).astype(np.int8)
    return {"num_turns": np.maximum(values["num_turns"], 1), "has_tool_errors": has_errors}


def _replay_counts(
    rows: Sequence[Any], counts: npt.NDArray[np.int64], ids: npt.NDArray[np.uint32]
) -> npt.NDArray[np.int32]:
    """Return how often each trajectory was replayed in its run; rows are in order of runs."""
    num_replays = np.zeros(len(ids), dtype=np.int32)
    run_keys = np.array([row.run_key for row in rows], dtype=np.int64)
    ends = np.concatenate([[0], np.cumsum(counts)])
    for run_key in np.unique(run_keys):
        first, last = np.searchsorted(run_keys, [run_key, run_key + 1])
        replayed = np.frombuffer(b"".join(row.replayed for row in rows[first:last]), dtype=IDS)
        of_run = slice(ends[first], ends[last])
        found, times = np.unique(replayed, return_counts=True)
        if len(found):
            at = np.minimum(np.searchsorted(found, ids[of_run]), len(found) - 1)
            num_replays[of_run] = np.where(found[at] == ids[of_run], times[at], 0)
    return num_replays


def read_rewards(connection: Connection, columns: TrajectoryColumns) -> npt.NDArray[np.float64]:
    """Return the reward of each trajectory, NaN where it has none."""
    rewards = np.full(len(columns.keys), np.nan)
    if not len(rewards):
        return rewards
    of_all = models.trajectories
    first, last = int(columns.keys[0]), int(columns.keys[-1])
    query = select(of_all.c.trajectory_key, type_coerce(of_all.c.reward, Double))
    query = query.where(of_all.c.trajectory_key.between(first, last), of_all.c.reward.is_not(None))
    found = np.fromiter(map(tuple, connection.execute(query)), dtype=[("key", np.int64), ("reward", np.float64)])
    at = np.minimum(np.searchsorted(columns.keys, found["key"]), len(rewards) - 1)
    is_listed = columns.keys[at] == found["key"]
    rewards[at[is_listed]] = found["reward"][is_listed]
    return rewards


@dataclass(frozen=True, slots=True)
class _Remembered:
    version: _Version
    columns: TrajectoryColumns
    searches: OrderedDict[str, TrajectoryColumns] = field(default_factory=OrderedDict)


_remembered: WeakKeyDictionary[Engine, OrderedDict[_RunKey, _Remembered]] = WeakKeyDictionary()


def columns_of_run(connection: Connection, run_id: str, run_key: int, words: str = "") -> TrajectoryColumns:
    """Return the facts of a run's trajectories as they are now, with words only of those that contain every word."""
    known = _known(connection, run_id, run_key)
    if not words:
        return known.columns
    with _lock:
        if words in known.searches:
            return known.searches[words]
    matching = known.columns.only(known.columns.holding(all_matching(connection, words, run_key)))
    with _lock:
        _put(known.searches, words, matching, MAX_SEARCHES)
    return matching


def _known(connection: Connection, run_id: str, run_key: int) -> _Remembered:
    key, version = (run_id, run_key), _version(connection, run_key)
    with _lock:
        of_database = _remembered.setdefault(connection.engine, OrderedDict())
        known = of_database.get(key)
        if known is not None and known.version == version:
            of_database.move_to_end(key)
            return known
    known = _Remembered(version, read_columns(connection, run_key))
    with _lock:
        _put(of_database, key, known, MAX_RUNS)
    return known


def _put(kept: OrderedDict[_Key, _Value], key: _Key, value: _Value, most: int) -> None:
    kept[key] = value
    kept.move_to_end(key)
    while len(kept) > most:
        kept.popitem(last=False)


def _version(connection: Connection, run_key: int) -> _Version:
    """Return counts that change with a run's columns: blocks are added, changed, and replaced by a later attempt's."""
    blocks = models.trajectory_blocks
    sums = [func.coalesce(func.sum(column), 0) for column in (blocks.c.num_changes, blocks.c.attempt)]
    count, changes, attempts = connection.execute(select(func.count(), *sums).where(blocks.c.run_key == run_key)).one()
    return int(count), int(changes), int(attempts)
