"""The columns of the last runs, so that the next facet, page or count of a run does not read them again."""

from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Lock
from typing import TypeVar
from weakref import WeakKeyDictionary

from sqlalchemy import Connection, Engine, Integer, cast, func, select

from db.queries.text_search import all_matching
from db.queries.trajectory_columns import TrajectoryColumns, read_columns
from db.tables import models

MAX_RUNS = 3
"""Each takes about 35 bytes per trajectory, and as much again for each search."""
MAX_SEARCHES = 3
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_RunKey = tuple[str, int]
_Version = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Remembered:
    version: _Version
    columns: TrajectoryColumns
    searches: OrderedDict[str, TrajectoryColumns] = field(default_factory=OrderedDict)


_remembered: WeakKeyDictionary[Engine, OrderedDict[_RunKey, _Remembered]] = WeakKeyDictionary()
_lock = Lock()


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
    """Return counts that change with a run's columns: blocks are added and superseded, never changed or removed."""
    blocks = models.trajectory_blocks
    num_superseded = func.coalesce(func.sum(cast(blocks.c.is_superseded, Integer)), 0)
    row = connection.execute(select(func.count(), num_superseded).where(blocks.c.run_key == run_key)).one()
    return int(row[0]), int(row[1])
