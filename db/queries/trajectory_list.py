"""Trajectories by words and facets, newest first, page by page; counts are exact up to a bound."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, case, exists, false, func, null, select

from exgrpo.db.connections.session import Database
from exgrpo.db.ingest.event_rows import keys_of_run
from exgrpo.db.queries.text_search import all_matching, newest_matching, split_words
from exgrpo.db.queries.trajectories import replay_count, select_rows
from exgrpo.db.rows.trajectories import (
    MOST_REPLAYED,
    QuestionCountRow,
    QuestionOrder,
    QuestionSortKey,
    TrajectoryFacets,
    TrajectoryOrder,
    TrajectoryRow,
    TrajectorySortKey,
)
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import one_of
from exgrpo.db.tables.correctness import is_correct_column
from exgrpo.db.tables.shared_reads import find_run_key, require_run_key
from exgrpo_core.sums import VERDICTS

NO_RUN = 0
"""The key of no run; they count from 1."""
NUM_NEWEST = 2000
"""The number of newest trajectories with the words that are searched before all of them."""
FEW_NEWEST = 200
"""The number searched first: enough for a page without facets."""
SNIPPET_CHARACTERS = 160
SEARCHED_CHARACTERS = 20_000
"""Snippets come from this beginning of a text, so that a list reads no long texts."""
_BATCH = 150
_OF = models.trajectories.c
_Condition = ColumnElement[Any]
_REPLAYS = models.replays.c
_FACTS: dict[str, ColumnElement[Any]] = {
    "question_index": _OF.question_index,
    "bucket": _OF.bucket,
    "verdict": _OF.verdict,
    "is_correct": is_correct_column(),
    "is_replayed": exists().where(_REPLAYS.run_key == _OF.run_key, _REPLAYS.trajectory_id == _OF.trajectory_id),
    "has_code": _OF.has_code,
    "is_valid": _OF.is_valid,
    "has_tool_errors": case((_OF.num_tool_calls > 0, _OF.num_tool_errors > 0), else_=null()),
}
"""What a facet has one value of. Replays of other runs have ids below 0."""
_FACET_VALUES: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(("is_correct", "is_replayed", "has_code", "is_valid", "has_tool_errors"), (True, False)),
    "verdict": VERDICTS,
}
_CHOICES = (("is_correct", "verdict"), ("is_replayed",), ("has_code",), ("is_valid",), ("has_tool_errors",))
"""Facets that pages offer in one choice, which replaces what was chosen of any of them."""
_KNOWN: dict[str, _Condition] = {
    **{name: _FACTS[name].is_not(None) for name in ("is_correct", "has_code", "is_valid", "bucket")},
    **{name: _OF[name].is_not(None) for name in ("reward", "mean_entropy", "num_turns")},
    "num_tokens": _OF.num_tokens > 0,
}
"""What holds where something is known, by the facet or column; for replays see `has_replays`."""
_TURNS = func.coalesce(_OF.num_turns, 1)
_RANGES = {
    "step": (_OF.step, "step_from", "step_to"),
    "mean_entropy": (_OF.mean_entropy, "entropy_from", "entropy_to"),
    "reward": (_OF.reward, "reward_from", "reward_to"),
    "num_tokens": (_OF.num_tokens, "tokens_from", "tokens_to"),
    "num_turns": (_TURNS, "turns_from", "turns_to"),
}
_SORTED_BY: dict[TrajectorySortKey, ColumnElement[Any]] = {
    TrajectorySortKey.STEP: _OF.step,
    TrajectorySortKey.QUESTION: _OF.question_index,
    TrajectorySortKey.REWARD: _OF.reward,
    TrajectorySortKey.TOKENS: _OF.num_tokens,
    TrajectorySortKey.ENTROPY: _OF.mean_entropy,
    TrajectorySortKey.REPLAYS: replay_count(),
    TrajectorySortKey.TURNS: _TURNS,
}

FacetCounts = dict[str, dict[Any, int]]


def list_snippets(
    database: Database, facets: TrajectoryFacets, *, before: int | None = None, limit: int = 50, is_whole: bool = False,
    order: TrajectoryOrder | None = None,
) -> list[TrajectoryRow]:  # fmt: skip
    """Return a page of trajectories, newest first within a run; `before` is the last row's key.

    With an `order` they are the first by it of all that match. With `is_whole` they have whole texts and messages.
    """
    with database.read() as connection:
        if order is None:
            keys = _page_keys(connection, facets, before, limit)
        else:
            matching = _matching(connection, facets)
            keys = [*connection.scalars(select(_OF.trajectory_key).where(*matching).order_by(*_by(order)).limit(limit))]
        return _snippets(connection, keys, facets.words, is_whole)


def iterate_whole(
    database: Database, facets: TrajectoryFacets, order: TrajectoryOrder | None
) -> Iterator[list[TrajectoryRow]]:
    """Return all trajectories that match now, whole, in batches that are read as they are asked for.

    Raises:
        UnknownRunError: There is no such run.
    """
    with database.read() as connection:
        if facets.run_id is not None:
            require_run_key(connection, facets.run_id)
        query = select(_OF.trajectory_key).where(*_matching(connection, facets)).order_by(*_by(order))
        keys = connection.scalars(query).all()
    return (_read_whole(database, [*keys[start : start + _BATCH]]) for start in range(0, len(keys), _BATCH))


def _read_whole(database: Database, keys: list[int]) -> list[TrajectoryRow]:
    with database.read() as connection:
        return _snippets(connection, keys, "", is_whole=True)


def neighbours(
    database: Database, facets: TrajectoryFacets, order: TrajectoryOrder | None, trajectory_id: int
) -> tuple[int | None, int | None]:
    """Return the trajectories above and below one of a run's that match, in the list of all, newest first or sorted.

    One that does not match has neighbours by its number, in an order none.
    """
    with database.read() as connection:
        ids = select(_OF.trajectory_id).where(*_matching(connection, facets))
        if order is not None:
            return _around(list(connection.scalars(ids.order_by(*_by(order)))), trajectory_id)
        above = ids.where(_OF.trajectory_id > trajectory_id).order_by(_OF.trajectory_id).limit(1)
        below = ids.where(_OF.trajectory_id < trajectory_id).order_by(_OF.trajectory_id.desc()).limit(1)
        return connection.scalar(above), connection.scalar(below)


def _around(ids: list[int], trajectory_id: int) -> tuple[int | None, int | None]:
    if trajectory_id not in ids:
        return None, None
    place = ids.index(trajectory_id)
    return ids[place - 1] if place else None, ids[place + 1] if place + 1 < len(ids) else None


def _snippets(connection: Connection, keys: list[int], words: str, is_whole: bool) -> list[TrajectoryRow]:
    """Return the trajectories of the keys, in their order."""
    query = select_rows(None if is_whole else SEARCHED_CHARACTERS, has_messages=is_whole)
    asked = connection.execute(query.where(_OF.trajectory_key.in_(keys)))
    found = {row.trajectory_key: TrajectoryRow(*row) for row in asked}
    rows = [found[key] for key in keys if key in found]
    return rows if is_whole else [
        replace(row, prompt=snippet_of(row.prompt, ""), text=snippet_of(row.text, words)) for row in rows
    ]  # fmt: skip


def count_trajectories(database: Database, facets: TrajectoryFacets) -> int:
    """Return how many trajectories match."""
    with database.read() as connection:
        matching = _matching(connection, facets)
        return connection.scalar(select(func.count()).select_from(models.trajectories).where(*matching)) or 0


def count_facets(database: Database, facets: TrajectoryFacets) -> FacetCounts:
    """Return for each value of each facet with fixed values how many would match if it were chosen; None: unknown."""
    chosen = [choice for choice in _CHOICES if any(getattr(facets, name) is not None for name in choice)]
    others = tuple(name for choice in _CHOICES if choice not in chosen for name in choice)
    counts: FacetCounts = {}
    with database.read() as connection:
        for without, names in [((), others), *zip(chosen, chosen, strict=True)]:
            counts |= _count_values(connection, names, _matching(connection, facets, without))
    return {name: counts[name] for name in _FACET_VALUES}


def _count_values(connection: Connection, names: tuple[str, ...], matching: list[_Condition]) -> FacetCounts:
    """Return the counts of some facets in one scan; replayed ones are a join, not a look-up for each trajectory."""
    values = [(name, value) for name in names if name != "is_replayed" for value in _FACET_VALUES[name]]
    counted = [func.count().filter(_is(name, value)) for name, value in values]
    query = select(func.count(), *counted).select_from(models.trajectories).where(*matching)
    num_all, *found = connection.execute(query).one()
    counts: FacetCounts = {name: {} for name in names}
    for (name, value), count in zip(values, found, strict=True):
        counts[name][value] = count
    if "is_replayed" in counts:
        replayed = select(func.count()).select_from(models.trajectories).where(*matching, _FACTS["is_replayed"])
        num_replayed = connection.scalar(replayed) or 0
        counts["is_replayed"] = {True: num_replayed, False: num_all - num_replayed}
    return {name: of_one | {None: num_all - sum(of_one.values())} for name, of_one in counts.items()}


def list_questions(
    database: Database, facets: TrajectoryFacets, *, is_unsolved: bool = False, order: QuestionOrder = MOST_REPLAYED,
    limit: int | None = 50,
) -> list[QuestionCountRow]:  # fmt: skip
    """Return the questions of the trajectories that match, most replayed first, with counts over all their rollouts.

    With `is_unsolved` only those that no rollout of the run has solved.
    """
    with database.read() as connection:
        query = _questions(connection, facets, is_unsolved)
        by = query.selected_columns["question_index" if order.key is QuestionSortKey.QUESTION else f"num_{order.key}"]
        sort = (by.desc() if order.is_descending else by.asc()).nulls_last()
        rows = connection.execute(query.order_by(sort, query.selected_columns.question_index).limit(limit))
        return [replace(QuestionCountRow(*row), prompt=snippet_of(row.prompt, "")) for row in rows]


def count_questions(database: Database, facets: TrajectoryFacets, *, is_unsolved: bool = False) -> int:
    """Return how many questions `list_questions` has without a limit."""
    with database.read() as connection:
        found = _questions(connection, facets, is_unsolved).subquery()
        return connection.scalar(select(func.count()).select_from(found)) or 0


def _questions(connection: Connection, facets: TrajectoryFacets, is_unsolved: bool) -> Select[Any]:
    """Return the query for the fields of `QuestionCountRow`."""
    run_key, questions = _run_key(connection, facets) or NO_RUN, models.questions
    num_correct = func.sum(case((is_correct_column(), 1), (is_correct_column().is_not(None), 0)))
    counted = [_of_run(run_key)]
    if replace(facets, run_id=None) != TrajectoryFacets():
        asked = select(_OF.question_index).where(*_matching(connection, facets)).correlate(None)
        counted.append(_OF.question_index.in_(asked))
    rollouts = (
        select(
            _OF.question_index, func.count(_OF.step.distinct()).label("num_steps"), func.count().label("num_rollouts"),
            num_correct.label("num_correct"),
        )
        .where(*counted)
        .group_by(_OF.question_index)
        .subquery()
    )  # fmt: skip
    replays = (
        select(_REPLAYS.question_index, func.count().label("number"), func.max(_REPLAYS.step).label("last"))
        .where(_REPLAYS.run_key == run_key, ~_REPLAYS.is_external)
        .group_by(_REPLAYS.question_index)
        .subquery()
    )
    text = (
        (questions.c.run_key == run_key)
        & (questions.c.question_set == "training")
        & (questions.c.question_index == rollouts.c.question_index)
    )
    query = (
        select(
            rollouts.c.question_index, func.coalesce(questions.c.question_id, "").label("question_id"),
            rollouts.c.num_steps, rollouts.c.num_rollouts, rollouts.c.num_correct,
            func.coalesce(replays.c.number, 0).label("num_replays"), replays.c.last.label("last_replayed_step"),
            func.substr(func.coalesce(questions.c.prompt_text, ""), 1, SEARCHED_CHARACTERS).label("prompt"),
        )
        .outerjoin(replays, replays.c.question_index == rollouts.c.question_index)
        .outerjoin(questions, text)
    )  # fmt: skip
    return query.where(rollouts.c.num_correct == 0) if is_unsolved else query


def list_known(database: Database, run_id: str) -> list[str]:
    """Return the facets, and columns with bounds, that any trajectory of a run has a value of."""
    with database.read() as connection:
        of_run = _of_run(find_run_key(connection, run_id) or NO_RUN)
        known = [
            name for name, is_known in _KNOWN.items() if connection.scalar(select(exists().where(of_run, is_known)))
        ]
    return [*known, "is_replayed"] if has_replays(database, run_id) else known


def has_replays(database: Database, run_id: str) -> bool:
    """Return whether a run replayed any of its own trajectories."""
    with database.read() as connection:
        is_own = _REPLAYS.run_key == (find_run_key(connection, run_id) or NO_RUN), ~_REPLAYS.is_external
        return bool(connection.scalar(select(exists().where(*is_own))))


def list_tools(database: Database, run_id: str) -> list[str]:
    """Return the names of the tools in a run's conversations, in order."""
    query = select(_OF.tools).distinct().join_from(models.trajectories, models.runs)
    with database.read() as connection:
        found = connection.scalars(query.where(models.runs.c.run_id == run_id, _OF.tools.is_not(None))).all()
    return sorted({name for names in found for name in names})


def snippet_of(text: str, words: str) -> str:
    """Return one line of a text: its start, or the part around the first matching word."""
    line = " ".join(text.split())
    lowered = line.lower()
    positions = [at for word in split_words(words.lower()) if (at := lowered.find(word)) >= 0]
    start = max(0, min(positions) - SNIPPET_CHARACTERS // 4) if positions else 0
    end = start + SNIPPET_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _page_keys(connection: Connection, facets: TrajectoryFacets, before: int | None, limit: int) -> list[int]:
    conditions = _fitting(connection, facets)
    if before is not None:
        conditions.append(_OF.trajectory_key < before)
    query = select(_OF.trajectory_key).order_by(_OF.trajectory_key.desc()).limit(limit)
    if not facets.searched:
        return [*connection.scalars(query.where(*conditions))]
    run_key = _run_key(connection, facets)
    for num_newest in (FEW_NEWEST, NUM_NEWEST):
        newest = newest_matching(connection, facets.searched, run_key, before=before, limit=num_newest)
        keys = [*connection.scalars(query.where(*conditions, one_of(_OF.trajectory_key, newest)))]
        if len(keys) >= limit or len(newest) < num_newest:
            return keys
    return [*connection.scalars(query.where(*conditions, _has_words(connection, facets)))]


def _by(order: TrajectoryOrder | None) -> list[ColumnElement[Any]]:
    """Return what sorts trajectories: newest first, or by an order, unknown values last."""
    newest = _OF.trajectory_key.desc()
    if order is None:
        return [newest]
    column = _SORTED_BY[order.key]
    return [(column.desc() if order.is_descending else column.asc()).nulls_last(), newest]


def _matching(connection: Connection, facets: TrajectoryFacets, without: tuple[str, ...] = ()) -> list[_Condition]:
    """Return the conditions of words and of all facets but those of `without`."""
    words = [_has_words(connection, facets)] if facets.searched else []
    return [*_fitting(connection, facets, without), *words]


def _fitting(connection: Connection, facets: TrajectoryFacets, without: tuple[str, ...] = ()) -> list[_Condition]:
    run_key = _run_key(connection, facets)
    conditions: list[_Condition] = [] if run_key is None else [_of_run(run_key)]
    for name in _FACTS:
        value = getattr(facets, name)
        if value is not None and name not in without:
            conditions.append(_is(name, value))
    for column, low_name, high_name in _RANGES.values():
        low, high = getattr(facets, low_name), getattr(facets, high_name)
        conditions += [] if low is None else [column >= low]
        conditions += [] if high is None else [column <= high]
    return conditions


def _of_run(run_key: int) -> _Condition:
    """Return the condition of a run's trajectories, by their keys: a page of the newest is then read without a sort."""
    first, end = keys_of_run(run_key)
    return (_OF.trajectory_key >= first) & (_OF.trajectory_key < end)


def _is(name: str, value: Any) -> _Condition:  # noqa: ANN401 - any facet's value
    fact: _Condition = _FACTS[name]
    if isinstance(value, bool):
        return fact if value else ~fact
    is_equal: _Condition = fact == value
    return is_equal


def _has_words(connection: Connection, facets: TrajectoryFacets) -> _Condition:
    keys = all_matching(connection, facets.searched, _run_key(connection, facets))
    return false() if keys is None else _OF.trajectory_key.in_(keys)


def _run_key(connection: Connection, facets: TrajectoryFacets) -> int | None:
    if facets.run_id is None:
        return None
    run_key = find_run_key(connection, facets.run_id)
    return NO_RUN if run_key is None else run_key
