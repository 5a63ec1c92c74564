"""Which runs to list: words, states and archived or not, as conditions in SQL."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, Float, String, and_, case, cast, func, literal, or_, select

from db.connections.session import Database
from db.queries.text_search import check_search
from db.rows.spec_fields import (
    DEFAULT_EXPERIENCE_RATIO,
    RECORDED_KIND,
    UNKNOWN,
    experience_ratio,
    is_recorded,
    is_unreadable,
)
from db.tables import models

_CONDITION = re.compile(r"([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*){0,7})(!=|>=|<=|=|>|<)(.+)")
"""Of a field at most 8 deep: SQLite cannot parse a condition on one that is much deeper."""
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"
JOB_NAMES = {"eval": "evaluation", "judge": "judging"}
"""The names of jobs other than training."""
_STATES = ("running", "starting", "stopping", "queued", "failed", "lost", "stopped", "finished")
"""States from live to ended."""


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; the defaults are all that are not archived."""

    words: str = ""
    """Every word must be in the name, id, method, model, data set or a tag; case does not matter.

    A word such as `seed=3` or `optim.learning_rate<1e-5` is a condition on a field of the specification.
    """
    statuses: tuple[str, ...] = ()
    """States to list; none lists all."""
    is_archived: bool | None = False
    """Whether archived runs are listed, or others; None lists both."""
    kinds: tuple[str, ...] = ()
    """Kinds of jobs to list (train, eval, judge); none lists all."""
    ended_after: datetime | None = None
    """Runs that ended later, or have not ended; None lists all."""


def conditions(where: RunFilter) -> list[ColumnElement[bool]]:
    """Return the conditions on a run's row.

    Raises:
        SearchError: There are too many words.
    """
    runs = models.runs
    # PostgreSQL takes no text with a NUL in it.
    check_search(where.words)
    words = where.words.replace("\0", " ").split()
    wanted = [_holds_word_or_field(word) for word in words]
    if where.statuses:
        wanted.append(runs.c.status.in_(where.statuses))
    if where.kinds:
        kinds = (*where.kinds, RECORDED_KIND) if "train" in where.kinds else where.kinds
        wanted.append(func.coalesce(runs.c.spec["kind"].as_string(), "train").in_(kinds))
    if where.is_archived is not None:
        wanted.append(runs.c.is_archived if where.is_archived else ~runs.c.is_archived)
    if where.ended_after is not None:
        wanted.append(or_(runs.c.ended_at.is_(None), runs.c.ended_at > where.ended_after))
    return wanted


def _holds_word_or_field(word: str) -> ColumnElement[bool]:
    """Return that a run has the field's value that a word like `seed=3` asks for, or holds the word itself."""
    is_held, has_field = _holds_word(word.lower()), field_condition(word)
    return is_held if has_field is None else or_(has_field, is_held)


def _holds_word(word: str) -> ColumnElement[bool]:
    runs, tags = models.runs, models.tags
    sources = [runs.c.spec[part]["source"].as_string() for part in ("model", "data")]
    texts = [runs.c.name, runs.c.run_id, method_expression(), *sources]
    has_tag = select(tags.c.tag).where(tags.c.run_key == runs.c.run_key, _contains(tags.c.tag, word)).exists()
    return or_(*(_contains(text, word) for text in texts), has_tag)


def _contains(text: ColumnElement[str], word: str) -> ColumnElement[bool]:
    return func.coalesce(func.lower(text), "").contains(word, autoescape=True)


def list_specs(database: Database, run_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the specification of each of these runs by its id."""
    runs = models.runs
    with database.read() as connection:
        rows = connection.execute(select(runs.c.run_id, runs.c.spec).where(runs.c.run_id.in_(run_ids)))
        return {row.run_id: row.spec for row in rows}


def field_condition(word: str) -> ColumnElement[bool] | None:
    """Return what `seed=3` or `optim.learning_rate<1e-5` asks of a run's specification; None of another word."""
    match = _CONDITION.fullmatch(word)
    if match is None:
        return None
    path, sign, wanted = match.groups()
    entry: Any = models.runs.c.spec
    for name in path.split("."):
        entry = entry[name]
    text = cast(entry.as_string(), String)
    is_number = re.fullmatch(_NUMBER, wanted) is not None
    number = case((text.regexp_match(_NUMBER), cast(entry.as_string(), Float)))
    if sign in {"=", "!="}:
        is_equal = _is_text(text, wanted) if not is_number else or_(_is_text(text, wanted), number == float(wanted))
        return is_equal if sign == "=" else ~func.coalesce(is_equal, False)
    if not is_number:
        return and_(text.is_not(None), text != text)
    value = float(wanted)
    return {">": number > value, "<": number < value, ">=": number >= value, "<=": number <= value}[sign]


def _is_text(text: ColumnElement[str], wanted: str) -> ColumnElement[bool]:
    # SQLite reads true and false of JSON as 1 and 0.
    spellings = {"true": ("true", "1"), "false": ("false", "0")}.get(wanted, (wanted,))
    return text.in_(spellings)


def method_name(spec: Mapping[str, Any]) -> str:
    """Return the short name of a specification's algorithm, or the name of another job."""
    kind = str(spec.get("kind", "train"))
    if is_recorded(spec) or (kind == "train" and is_unreadable(spec)):
        return UNKNOWN
    if kind != "train":
        return JOB_NAMES.get(kind, kind)
    algorithm = spec.get("algorithm", {})
    names = {
        "SFT": spec.get("sft") is not None,
        "masked GRPO": algorithm.get("mask_range") is not None,
        "ExGRPO": experience_ratio(spec) > 0.0,
        "LUFFY": algorithm.get("uses_external_experience", False),
        "GRPO": algorithm.get("normalize_by_std", False),
    }
    return next((name for name, applies in names.items() if applies), "Dr.GRPO")


def method_expression() -> ColumnElement[str]:
    """Return the SQL expression whose value is `method_name` of a run's specification."""
    spec = models.runs.c.spec
    kind = func.coalesce(spec["kind"].as_string(), "train")
    algorithm = spec["algorithm"]
    ratio = func.coalesce(algorithm["experience_ratio"].as_float(), DEFAULT_EXPERIENCE_RATIO)
    return case(
        *((kind == job, literal(name)) for job, name in JOB_NAMES.items()),
        (kind == RECORDED_KIND, literal(UNKNOWN)),
        (kind != "train", kind),
        (spec["is_unreadable"].as_string().is_not(None), literal(UNKNOWN)),
        (spec["sft"].as_string().is_not(None), literal("SFT")),
        (algorithm["mask_range"].as_string().is_not(None), literal("masked GRPO")),
        (ratio > 0.0, literal("ExGRPO")),
        (func.coalesce(algorithm["uses_external_experience"].as_boolean(), False), literal("LUFFY")),
        (func.coalesce(algorithm["normalize_by_std"].as_boolean(), False), literal("GRPO")),
        else_=literal("Dr.GRPO"),
    )


class RunSortKey(StrEnum):
    """The sort key of runs."""

    CREATED = "created"
    STARTED = "started"
    NAME = "name"
    STATE = "state"
    METHOD = "method"
    PROGRESS = "progress"
    PASS_AT_1 = "pass_at_1"
    AVG_AT_N = "avg_at_n"


@dataclass(frozen=True, slots=True)
class RunOrder:
    """How runs are sorted; runs without a value come last in both directions, equal ones with the greatest id first."""

    key: RunSortKey = RunSortKey.CREATED
    is_descending: bool = True


NEWEST_FIRST = RunOrder()


def sort_columns(order: RunOrder) -> list[ColumnElement[Any]]:
    """Return the columns to order by."""
    value = _value(order.key)
    ordered = value.desc() if order.is_descending else value.asc()
    return [value.is_(None), ordered, models.runs.c.run_id.desc()]


def comes_after(connection: Connection, order: RunOrder, run_id: str) -> ColumnElement[bool]:
    """Return the condition that a run comes after the run of this id, by its present value."""
    id_column, value = models.runs.c.run_id, _value(order.key)
    last = connection.scalar(select(value).where(id_column == run_id))
    if last is None:
        return and_(value.is_(None), id_column < run_id)
    is_beyond = value < last if order.is_descending else value > last
    return or_(is_beyond, and_(value == last, id_column < run_id), value.is_(None))


def _value(key: RunSortKey) -> ColumnElement[Any]:
    runs = models.runs
    columns = {RunSortKey.CREATED: runs.c.created_at, RunSortKey.STARTED: runs.c.started_at}
    if key in columns:
        return columns[key]
    if key is RunSortKey.NAME:
        return func.lower(runs.c.name)
    if key is RunSortKey.STATE:
        ranks = {state: index for index, state in enumerate(_STATES)}
        return case(ranks, value=runs.c.status, else_=len(ranks))
    if key is RunSortKey.METHOD:
        return func.lower(method_expression())
    if key is RunSortKey.PROGRESS:
        return runs.c.step * 1.0 / func.nullif(runs.c.spec["num_steps"].as_float(), 0.0)
    score: ColumnElement[Any] = runs.c.summary[f"last_{key}"].as_float()
    return score
