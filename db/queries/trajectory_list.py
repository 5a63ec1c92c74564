"""Trajectories by words and facets, newest first, page by page; counts are exact up to a bound."""

from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, select

from db import models
from db.queries.run_lookup import find_run_key
from db.queries.text_search import Keys, found_keys, split_words
from db.queries.trajectory_columns import FLAGS, NO_RUN, TrajectoryColumns, code_of, read_columns
from db.session import Database
from db.trajectory_blocks import VERDICTS
from db.trajectory_rows import SnippetRow, TrajectoryFacets

MAX_COUNT = 10_000
"""Counts are exact up to here; one more means "more than that"."""
SNIPPET_CHARACTERS = 160
_FACET_VALUES: dict[str, tuple[Any, ...]] = {**dict.fromkeys(FLAGS, (True, False)), "verdict": VERDICTS}

FacetCounts = dict[str, dict[Any, int]]


def list_snippets(
    database: Database, facets: TrajectoryFacets, *, before: int | None = None, limit: int = 50
) -> list[SnippetRow]:
    """Return a page of trajectories, newest first within a run; `before` is the last row's key."""
    own, texts, runs, replays = models.trajectories, models.trajectory_texts, models.runs, models.replays
    with database.read() as connection:
        keys = _page_keys(connection, facets, before, limit)
        num_replays = (
            select(func.count())
            .where(
                replays.c.run_key == own.c.run_key,
                replays.c.trajectory_id == own.c.trajectory_id,
                ~replays.c.is_superseded,
            )
            .scalar_subquery()
        )
        query = (
            select(own, runs.c.run_id, runs.c.name.label("run_name"), texts.c.text, num_replays.label("num_replays"))
            .join_from(own, runs)
            .join(texts, texts.c.trajectory_key == own.c.trajectory_key)
            .where(own.c.trajectory_key.in_(keys))
            .order_by(own.c.trajectory_key.desc())
        )
        rows = connection.execute(query).mappings().all()
    names = [name for name in SnippetRow.__dataclass_fields__ if name != "snippet"]
    return [
        SnippetRow(**{name: row[name] for name in names}, snippet=snippet_of(row["text"], facets.words)) for row in rows
    ]


def count_trajectories(database: Database, facets: TrajectoryFacets) -> int:
    """Return how many trajectories fit, at most `MAX_COUNT` + 1."""
    with database.read() as connection:
        return _bounded(int(np.count_nonzero(_read_found(connection, facets).fitting(facets))))


def count_facets(database: Database, facets: TrajectoryFacets) -> FacetCounts:
    """Return for each value of each closed facet how many would fit with it in place of what is chosen there."""
    with database.read() as connection:
        columns = _read_found(connection, facets)
    whole, counts = columns.fitting(facets), {}
    for name, values in _FACET_VALUES.items():
        fits = whole if getattr(facets, name) is None else columns.fitting(facets, without=name)
        # The first place counts what is unknown.
        found = np.bincount(columns.column(name)[fits].astype(np.int64) + 1, minlength=len(VERDICTS) + 1)
        counts[name] = {value: _bounded(int(found[int(code_of(name, value)) + 1])) for value in values}
    return counts


def snippet_of(text: str, words: str) -> str:
    """Return one line of a text: its start, or the surroundings of the first word found."""
    line = " ".join(text.split())
    lowered = line.lower()
    places = [place for word in split_words(words.lower()) if (place := lowered.find(word)) >= 0]
    start = max(0, min(places) - SNIPPET_CHARACTERS // 4) if places else 0
    end = start + SNIPPET_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _bounded(count: int) -> int:
    return min(count, MAX_COUNT + 1)


def _page_keys(connection: Connection, facets: TrajectoryFacets, before: int | None, limit: int) -> list[int]:
    columns = _read(connection, facets)
    keys = columns.keys[columns.fitting(facets)]
    if facets.words.strip():
        keys = np.sort(keys)
        found: list[int] = []
        for batch in found_keys(connection, facets.words, _run_key(connection, facets), before=before):
            found += batch[_are_in(batch, keys)].tolist()
            if len(found) >= limit:
                break
        return found[:limit]
    if before is not None:
        keys = keys[keys < before]
    newest: list[int] = (np.partition(keys, -limit)[-limit:] if len(keys) > limit else keys).tolist()
    return newest


def _read_found(connection: Connection, facets: TrajectoryFacets) -> TrajectoryColumns:
    """Return the facts of the trajectories that hold the words, if there are any."""
    columns = _read(connection, facets)
    if not facets.words.strip():
        return columns
    found = [*found_keys(connection, facets.words, _run_key(connection, facets))]
    return columns.only(
        _are_in(columns.keys, np.sort(np.concatenate(found))) if found else np.zeros(len(columns.keys), dtype=np.bool_)
    )


def _read(connection: Connection, facets: TrajectoryFacets) -> TrajectoryColumns:
    return read_columns(connection, _run_key(connection, facets), facets.step_from, facets.step_to)


def _run_key(connection: Connection, facets: TrajectoryFacets) -> int | None:
    if facets.run_id is None:
        return None
    run_key = find_run_key(connection, facets.run_id)
    return NO_RUN if run_key is None else run_key


def _are_in(keys: Keys, ordered: Keys) -> npt.NDArray[np.bool_]:
    """Return which keys are among others that are in order."""
    if not len(ordered):
        return np.zeros(len(keys), dtype=np.bool_)
    places = np.searchsorted(ordered, keys)
    are_in: npt.NDArray[np.bool_] = ordered[np.minimum(places, len(ordered) - 1)] == keys
    return are_in
