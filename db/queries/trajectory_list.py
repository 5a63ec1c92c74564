"""Trajectories by words and facets, newest first, page by page; counts are exact up to a bound."""

import re
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, and_, column, exists, func, literal, select, table, text

from db import models
from db.event_rows import trajectory_key
from db.queries.run_lookup import find_run_key
from db.session import Database
from db.trajectory_rows import SnippetRow, TrajectoryFacets

MAX_COUNT = 10_000
"""Counts are exact up to here; one more means "more than that"."""
SNIPPET_CHARACTERS = 160
_WORD = re.compile(r"\w+", re.UNICODE)
_VERDICTS = ("correct", "wrong", "unparsed", "timeout", "crash")
_FACET_VALUES: dict[str, tuple[Any, ...]] = {
    "is_correct": (True, False),
    "verdict": _VERDICTS,
    "is_replayed": (True, False),
    "has_code": (True, False),
    "is_valid": (True, False),
}

FacetCounts = dict[str, dict[Any, int]]


def list_snippets(
    database: Database, facets: TrajectoryFacets, *, before: int | None = None, limit: int = 50
) -> list[SnippetRow]:
    """Return a page of trajectories, newest first within a run; `before` is the last row's key."""
    own, texts, runs, replays = models.trajectories, models.trajectory_texts, models.runs, models.replays
    with database.read() as connection:
        matching = _matching(connection, facets, before)
        if matching is None:
            return []
        newest_first = matching.order_by(matching.selected_columns[0].desc())
        keys = list(connection.scalars(newest_first.limit(limit)))
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
        return _count(connection, facets)


def count_facets(database: Database, facets: TrajectoryFacets) -> FacetCounts:
    """Return for each value of each closed facet how many would fit with it in place of what is chosen there."""
    with database.read() as connection:
        return {
            name: {value: _count(connection, replace(facets, **{name: value})) for value in values}
            for name, values in _FACET_VALUES.items()
        }


def snippet_of(text_: str, words: str) -> str:
    """Return one line of a text: its start, or the surroundings of the first word found."""
    line = " ".join(text_.split())
    lowered = line.lower()
    places = [place for word in _WORD.findall(words.lower()) if (place := lowered.find(word)) >= 0]
    start = max(0, min(places) - SNIPPET_CHARACTERS // 4) if places else 0
    end = start + SNIPPET_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _count(connection: Connection, facets: TrajectoryFacets) -> int:
    matching = _matching(connection, facets, None)
    if matching is None:
        return 0
    bounded = matching.limit(MAX_COUNT + 1).subquery()
    return connection.scalar(select(func.count()).select_from(bounded)) or 0


def _matching(connection: Connection, facets: TrajectoryFacets, before: int | None) -> Select[Any] | None:
    """Return the query of the keys that fit, or None where nothing can: no such run, or no word in the words."""
    own = models.trajectories
    run_key = None if facets.run_id is None else find_run_key(connection, facets.run_id)
    if facets.run_id is not None and run_key is None:
        return None
    conditions = _conditions(facets, run_key)
    if not facets.words.strip():
        query = select(own.c.trajectory_key).where(*conditions)
        query = query if run_key is None else query.where(*_of_run(run_key))
        if run_key is not None and (facets.question_index, facets.step_from, facets.step_to) != (None, None, None):
            query = query.where(own.c.run_key == run_key)  # an index narrows these down before keys are sorted
    else:
        words = _WORD.findall(facets.words.replace("_", " "))
        if not words:
            return None
        query = _searching(connection, words, run_key).where(*conditions)
    return query if before is None else query.where(query.selected_columns[0] < before)


def _of_run(run_key: int) -> list[ColumnElement[bool]]:
    """Return that a trajectory is of a run, as a range of keys, so that a page is read in order and no more."""
    own = models.trajectories
    return [
        own.c.trajectory_key >= trajectory_key(run_key, 0, 0),
        own.c.trajectory_key < trajectory_key(run_key + 1, 0, 0),
    ]


def _searching(connection: Connection, words: list[str], run_key: int | None) -> Select[Any]:
    own, texts = models.trajectories, models.trajectory_texts
    if connection.dialect.name == "sqlite":
        # A search for words cannot use an index of the other table, so SQLite walks the words' own, newest first.
        phrases = " AND ".join(f'text : "{word}"' for word in words)
        pattern = phrases if run_key is None else f'facets : "run{run_key}" AND {phrases}'
        search = table("trajectory_search", column("rowid"))
        is_match = text("trajectory_search MATCH :pattern").bindparams(pattern=pattern)
        query = select(search.c.rowid).join_from(search, own, own.c.trajectory_key == search.c.rowid)
        return query.where(is_match)
    is_found = column("search").op("@@")(func.plainto_tsquery("simple", " ".join(words)))
    query = select(own.c.trajectory_key).join(texts, texts.c.trajectory_key == own.c.trajectory_key).where(is_found)
    return query if run_key is None else query.where(*_of_run(run_key))


def _conditions(facets: TrajectoryFacets, run_key: int | None) -> list[ColumnElement[bool]]:
    own = models.trajectories
    found = [~own.c.is_superseded]
    found += [
        own.c[name] == value
        for name in ("question_index", "verdict", "has_code", "is_valid")
        if (value := getattr(facets, name)) is not None
    ]
    for column_, low, high in (
        (own.c.step, facets.step_from, facets.step_to),
        (own.c.mean_entropy, facets.entropy_from, facets.entropy_to),
        (own.c.num_tokens, facets.tokens_from, facets.tokens_to),
    ):
        found += [column_ >= low] if low is not None else []
        found += [column_ <= high] if high is not None else []
    if facets.is_correct is not None:
        found.append(own.c.reward >= 1.0 if facets.is_correct else own.c.reward < 1.0)
    if facets.is_replayed is not None:
        found.append(_was_replayed(run_key) if facets.is_replayed else ~_was_replayed(run_key))
    if facets.bucket is not None:
        found.append(_was_stored_in(facets.bucket, run_key))
    return found


def _was_replayed(run_key: int | None) -> ColumnElement[bool]:
    own, replays = models.trajectories, models.replays
    if run_key is not None:
        of_run = select(replays.c.trajectory_id).where(replays.c.run_key == run_key, ~replays.c.is_superseded)
        return own.c.trajectory_id.in_(of_run)
    is_it = and_(replays.c.run_key == own.c.run_key, replays.c.trajectory_id == own.c.trajectory_id)
    return exists(select(literal(1)).where(is_it, ~replays.c.is_superseded))


def _was_stored_in(bucket: int, run_key: int | None) -> ColumnElement[bool]:
    own, changes = models.trajectories, models.buffer_changes
    is_stored = and_(changes.c.kind == "inserted", changes.c.bucket_to == bucket, ~changes.c.is_superseded)
    if run_key is not None:
        of_run = select(changes.c.trajectory_id).where(changes.c.run_key == run_key, is_stored)
        return own.c.trajectory_id.in_(of_run)
    is_it = and_(
        changes.c.run_key == own.c.run_key,
        changes.c.question_index == own.c.question_index,
        changes.c.step == own.c.step,
        changes.c.attempt == own.c.attempt,
        changes.c.trajectory_id == own.c.trajectory_id,
    )
    return exists(select(literal(1)).where(is_it, is_stored))
