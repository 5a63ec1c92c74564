"""Trajectories by words and facets, newest first, page by page; counts are exact up to a bound."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, func, select

from db.connections.session import Database
from db.ingest.event_rows import NONE
from db.queries.text_search import Keys, all_matching, newest_matching, split_words
from db.queries.trajectories import IS_ITS_QUESTION, replay_count
from db.queries.trajectory_columns import FLAGS, TrajectoryColumns, code_of, columns_of_run, read_columns, read_rewards
from db.rows.trajectories import SnippetRow, TrajectoryFacets, TrajectoryOrder, TrajectorySortKey
from db.tables import models
from db.tables.correctness import VERDICTS
from db.tables.shared_reads import find_run_key

MAX_COUNT = 10_000
"""Counts of trajectories with words are exact up to here; one more means "more than that"."""
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
_FACET_VALUES: dict[str, tuple[Any, ...]] = {**dict.fromkeys(FLAGS, (True, False)), "verdict": VERDICTS}

_SORTED_BY = {
    TrajectorySortKey.STEP: "step",
    TrajectorySortKey.QUESTION: "question_index",
    TrajectorySortKey.TOKENS: "num_tokens",
    TrajectorySortKey.ENTROPY: "mean_entropy",
    TrajectorySortKey.REPLAYS: "num_replays",
    TrajectorySortKey.TURNS: "num_turns",
}
"""The column of each key but the reward's, which the facts lack."""

FacetCounts = dict[str, dict[Any, int]]


def list_snippets(
    database: Database, facets: TrajectoryFacets, *, before: int | None = None, limit: int = 50, is_whole: bool = False,
    order: TrajectoryOrder | None = None,
) -> list[SnippetRow]:  # fmt: skip
    """Return a page of trajectories, newest first within a run; `before` is the last row's key.

    With an `order` they are the first by it of all that match. With `is_whole` snippet and prompt are the whole texts.
    """
    with database.read() as connection:
        if order is None:
            keys = _page_keys(connection, facets, before, limit)
        else:
            columns, places = _in_order(connection, facets, order)
            keys = columns.keys[places[:limit]].tolist()
        return _snippets(connection, keys, facets.words, is_whole)


def iterate_whole(
    database: Database, facets: TrajectoryFacets, order: TrajectoryOrder | None
) -> Iterator[list[SnippetRow]]:
    """Return all trajectories that match now, with whole texts, in batches that are read as they are asked for."""
    with database.read() as connection:
        columns, places = _in_order(connection, facets, order)
    starts = range(0, len(places), _BATCH)
    return (_read_whole(database, columns.keys[places[start : start + _BATCH]].tolist()) for start in starts)


def _read_whole(database: Database, keys: list[int]) -> list[SnippetRow]:
    with database.read() as connection:
        return _snippets(connection, keys, "", is_whole=True)


def neighbours(
    database: Database, facets: TrajectoryFacets, order: TrajectoryOrder | None, trajectory_id: int
) -> tuple[int | None, int | None]:
    """Return the trajectories above and below one of a run's that match, in the list of all, newest first or sorted.

    One that does not match has neighbours by its number, in an order none.
    """
    with database.read() as connection:
        columns, places = _in_order(connection, facets, order)
    ids = columns.columns["trajectory_id"][places]
    found = np.flatnonzero(ids == trajectory_id)
    if found.size:
        above, below = ids[: found[0]], ids[found[0] + 1 :]
    elif order is None:
        above, below = ids[ids > trajectory_id], ids[ids < trajectory_id]
    else:
        return None, None
    return int(above[-1]) if above.size else None, int(below[0]) if below.size else None


def _snippets(connection: Connection, keys: list[int], words: str, is_whole: bool) -> list[SnippetRow]:
    """Return the trajectories of the keys, in their order."""
    trajectories, texts, runs, questions = models.trajectories, models.trajectory_texts, models.runs, models.questions
    text = (texts.c.text if is_whole else func.substr(texts.c.text, 1, SEARCHED_CHARACTERS)).label("text")
    num_replays = replay_count().label("num_replays")
    prompt = questions.c.prompt_text if is_whole else func.substr(questions.c.prompt_text, 1, SEARCHED_CHARACTERS)
    query = (
        select(trajectories, runs.c.run_id, runs.c.name.label("run_name"), text, num_replays, prompt.label("prompt"))
        .join_from(trajectories, runs)
        .join(texts, texts.c.trajectory_key == trajectories.c.trajectory_key)
        .outerjoin(questions, IS_ITS_QUESTION)
        .where(trajectories.c.trajectory_key.in_(keys))
    )
    found = {row["trajectory_key"]: row for row in connection.execute(query).mappings()}
    names = [name for name in SnippetRow.__dataclass_fields__ if name not in {"prompt", "snippet"}]
    return [
        SnippetRow(
            **{name: row[name] for name in names},
            prompt=(row["prompt"] or "") if is_whole else snippet_of(row["prompt"] or "", ""),
            snippet=row["text"] if is_whole else snippet_of(row["text"], words),
        )
        for row in (found[key] for key in keys if key in found)
    ]


def count_trajectories(database: Database, facets: TrajectoryFacets) -> int:
    """Return how many trajectories match, with words `MAX_COUNT` + 1 for any number above."""
    with database.read() as connection:
        if facets.searched:
            # For a common word a part is enough to know that there are many.
            most = MAX_COUNT + NUM_NEWEST
            some = all_matching(connection, facets.searched, _run_key(connection, facets), most)
            columns = _read(connection, facets)
            count = int(np.count_nonzero(columns.fitting(facets) & columns.holding(some)))
            if count > MAX_COUNT or len(some) < most:
                return min(count, MAX_COUNT + 1)
        return int(np.count_nonzero(_read_matching(connection, facets).fitting(facets)))


def count_facets(database: Database, facets: TrajectoryFacets) -> FacetCounts:
    """Return for each value of each facet with fixed values how many would match if it were chosen; None: unknown."""
    with database.read() as connection:
        columns = _read_matching(connection, facets)
    whole, counts = columns.fitting(facets), {}
    for name, values in _FACET_VALUES.items():
        fits = whole if getattr(facets, name) is None else columns.fitting(facets, without=name)
        by_code = np.bincount(columns.columns[name][fits].astype(np.int64) + 1, minlength=len(VERDICTS) + 1)
        counts[name] = {value: int(by_code[int(code_of(name, value)) + 1]) for value in values} | {
            None: int(by_code[0])
        }
    return counts


def list_tools(database: Database, run_id: str) -> list[str] | None:
    """Return the names of the tools in a run's conversations, in order; None if it has no conversation."""
    blocks = models.trajectory_blocks
    query = select(blocks.c.tools).join(models.runs).where(models.runs.c.run_id == run_id, blocks.c.tools.is_not(None))
    with database.read() as connection:
        found = connection.scalars(query).all()
    return sorted({name for names in found for name in names}) if found else None


def snippet_of(text: str, words: str) -> str:
    """Return one line of a text: its start, or the part around the first matching word."""
    line = " ".join(text.split())
    lowered = line.lower()
    positions = [at for word in split_words(words.lower()) if (at := lowered.find(word)) >= 0]
    start = max(0, min(positions) - SNIPPET_CHARACTERS // 4) if positions else 0
    end = start + SNIPPET_CHARACTERS
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def _page_keys(connection: Connection, facets: TrajectoryFacets, before: int | None, limit: int) -> list[int]:
    columns = _read(connection, facets)
    fits = columns.fitting(facets)
    if before is not None:
        fits &= columns.keys < before
    if not facets.searched:
        return _last(columns.keys[fits], limit)
    run_key = _run_key(connection, facets)
    for num_newest in (FEW_NEWEST, NUM_NEWEST):
        newest = newest_matching(connection, facets.searched, run_key, before=before, limit=num_newest)
        keys = columns.keys[fits & columns.holding(newest)]
        if len(keys) >= limit or len(newest) < num_newest:
            return _last(keys, limit)
    return _last(columns.keys[fits & columns.holding(_read_matching(connection, facets).keys)], limit)


def _in_order(
    connection: Connection, facets: TrajectoryFacets, order: TrajectoryOrder | None
) -> tuple[TrajectoryColumns, npt.NDArray[np.int64]]:
    """Return facts, and the places in them of all trajectories that match: newest first, or by an order.

    Facts in NumPy answer for a million, and an index would make every ingest slower.
    """
    columns = _read_matching(connection, facets)
    places = np.flatnonzero(columns.fitting(facets))[::-1]
    if order is None:
        return columns, places
    if order.key is TrajectorySortKey.REWARD:
        if "reward" not in columns.columns:  # kept with the other facts
            columns.columns["reward"] = read_rewards(connection, columns)
        values = columns.columns["reward"][places]
    else:
        numbers = columns.columns[_SORTED_BY[order.key]][places]
        values = np.where(numbers == NONE, np.nan, numbers)
    return columns, places[np.argsort(-values if order.is_descending else values, kind="stable")]


def _last(keys: Keys, limit: int) -> list[int]:
    last: list[int] = keys[-limit:][::-1].tolist()
    return last


def _read_matching(connection: Connection, facets: TrajectoryFacets) -> TrajectoryColumns:
    """Return the facts of the trajectories that contain the words, of all without words."""
    return _read(connection, facets, facets.searched)


def _read(connection: Connection, facets: TrajectoryFacets, words: str = "") -> TrajectoryColumns:
    run_key = _run_key(connection, facets)
    if run_key is not None and facets.run_id is not None:
        return columns_of_run(connection, facets.run_id, run_key, words)
    columns = read_columns(connection, None)
    return columns.only(columns.holding(all_matching(connection, words, None))) if words else columns


def _run_key(connection: Connection, facets: TrajectoryFacets) -> int | None:
    if facets.run_id is None:
        return None
    run_key = find_run_key(connection, facets.run_id)
    return NO_RUN if run_key is None else run_key
