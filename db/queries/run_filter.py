"""Which runs to list: words, states and archived or not, as conditions in SQL."""

import difflib
import operator
import re
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, case, func, literal, or_, select

from exgrpo.db.connections.session import Database
from exgrpo.db.queries.run_values import NUMBER, UNDERSTOOD, RunValue, facets, method_expression, value_of
from exgrpo.db.queries.text_search import SearchError, check_search
from exgrpo.db.tables import models
from exgrpo.db.tables.column_types import natural_text, one_of
from exgrpo_core.recording.run_status import RunStatus

_CONDITION = re.compile(r'("[^"]+"|[A-Za-z_][\w@./-]*)(!=|>=|<=|=|>|<|:)(.+)')
_TERM = re.compile(r'(-?)((?:[^\s"]|"[^"]*")+)')
_SPELLINGS = {"state": "status", "tags": "tag", "dataset": "data", "run": "name"}
_KINDS = {
    "train": "train", "training": "train", "eval": "eval", "evaluation": "eval", "evaluations": "eval",
    "judge": "judge", "judges": "judge", "judging": "judge",
}  # fmt: skip
_FACETS = f"{', '.join([*facets()][:-1])} or {[*facets()][-1]}"


@dataclass(frozen=True, slots=True)
class RunFilter:
    """Which runs to list; the defaults are all that are not archived."""

    words: str = ""
    """Every word must be in the name, id, method, model, data set, a tag or a note; case does not matter.

    A word such as `status:failed`, `seed=3`, `optim.learning_rate<1e-5` or `avg@8>0.4` is a condition on a value
    (`exgrpo.db.queries.run_values`), a column's heading (`held-out>90%`, `"Batch Pass@1">0.5`) included; a - before a
    word excludes what it finds, quotation marks keep spaces and signs.
    """
    statuses: tuple[str, ...] = ()
    """States to list; none lists all."""
    is_archived: bool | None = False
    """Whether archived runs are listed, or others; None lists both."""
    kinds: tuple[str, ...] = ()
    """Kinds of jobs to list (train, eval, judge); none lists all."""


def conditions(connection: Connection, where: RunFilter) -> list[ColumnElement[bool]]:
    """Return the conditions on a run's row.

    Raises:
        SearchError: There are too many words, or one is no condition that could be read.
    """
    runs = models.runs
    # PostgreSQL takes no text with a NUL in it.
    check_search(where.words)
    wanted = [_holds(connection, *match.groups()) for match in _TERM.finditer(_closed(where.words.replace("\0", " ")))]
    if where.statuses:
        wanted.append(runs.c.status.in_(where.statuses))
    if where.kinds:
        wanted.append(facets()["kind"].in_(where.kinds))
    if where.is_archived is not None:
        wanted.append(runs.c.is_archived if where.is_archived else ~runs.c.is_archived)
    return wanted


def _closed(words: str) -> str:
    """Return the words with every quotation mark closed, as while they are typed."""
    return f'{words}"' if words.count('"') % 2 else words


def _holds(connection: Connection, minus: str, term: str) -> ColumnElement[bool]:
    match = _CONDITION.fullmatch(term)
    name = _facet(match.group(1).strip('"')) if match else ""
    if match is not None and match.group(2) == ":" and name not in {*facets(), "tag"}:
        match = None  # a word with a colon, such as a tag
        near = difflib.get_close_matches(name, [*facets(), "tag"], n=1, cutoff=0.8)
        if near or not (minus or _is_found(connection, term)):
            raise SearchError(_unknown_name(near), name)
    if match is None:
        if not term.startswith('"') and set(term) & set("<>="):
            raise SearchError(f"cannot be read; understood are {UNDERSTOOD}", term)
        held = _holds_word(term.replace('"', "").lower())
    else:
        held = _fulfils(connection, name, match.group(2), match.group(3).replace('"', ""))
    return ~func.coalesce(held, False) if minus else held


def _is_found(connection: Connection, word: str) -> bool:
    has_it = select(models.runs.c.run_key).where(_holds_word(word.replace('"', "").lower()))
    return connection.scalar(has_it.limit(1)) is not None


def _unknown_name(near: Sequence[str]) -> str:
    expected = f"expected {near[0]}:" if near else f"no run has this word, and names before a colon are tag, {_FACETS}"
    return f"{expected}; quotation marks look for the whole as a word"


def _facet(name: str) -> str:
    """Return the facet that a name or a column's heading means, any other name as it is."""
    facet = _SPELLINGS.get(name.lower(), name.lower())
    return facet if facet in {*facets(), "tag"} else name


def _fulfils(connection: Connection, name: str, sign: str, wanted: str) -> ColumnElement[bool]:
    """Return whether the value of this name fulfils a condition, which has to be one that it can be compared with."""
    if name == "tag":
        if sign not in {"=", "!=", ":"}:
            raise SearchError("is text; look for it with tag:NAME", "tag")
        held = _has_tag(models.tags.c.tag == wanted if sign in {"=", "!="} else _contains(models.tags.c.tag, wanted))
        return ~held if sign == "!=" else held
    value = value_of(connection, name)
    number = _number(wanted)
    if sign in {"=", "!=", ":"}:
        if name == "kind":
            if wanted not in _KINDS:
                raise SearchError(f"expected one of {', '.join(dict.fromkeys(_KINDS.values()))}", f"kind:{wanted}")
            wanted = _KINDS[wanted]
        is_equal = _is_equal(name, value, sign, wanted, number)
        return ~func.coalesce(is_equal, False) if sign == "!=" else is_equal
    if number is None or value.number is None:
        raise SearchError(f"{sign} compares numbers, as in batch_size>=128 or avg@8>0.4", f"{name}{sign}{wanted}")
    if value.text is not None:
        _check_numbers(connection, name, value.text)
    if value.is_share and number > 1.0:
        is_percentage = wanted.endswith("%") or number > 100.0
        remedy = "write at most 100%" if is_percentage else f"write {name}{sign}{wanted}%"
        raise SearchError(f"is a share from 0 to 1; {remedy}", name)
    compare = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}[sign]
    condition: ColumnElement[bool] = compare(value.number, number)
    return condition


def _check_numbers(connection: Connection, name: str, text: ColumnElement[Any]) -> None:
    """Refuse to compare values if none is a number, such as dates and lists: no run would be found.

    Raises:
        SearchError: No run has a number.
    """
    has_number = case((text.regexp_match(NUMBER), 1), else_=0)
    found = connection.execute(
        select(text, has_number).where(text.is_not(None)).order_by(has_number.desc()).limit(1)
    ).first()
    if found is not None and not found[1]:
        raise SearchError(f"is no number in any run, but {found[0]!r:.40}; compare it with =", name)


def _number(wanted: str) -> float | None:
    """Return the number that a text is, with a percent sign its hundredth; None of any other."""
    text = wanted.removesuffix("%")
    return None if re.fullmatch(NUMBER, text) is None else float(text) / (1.0 if text == wanted else 100.0)


def _is_equal(name: str, value: RunValue, sign: str, wanted: str, number: float | None) -> ColumnElement[bool]:
    if name == "status" and wanted not in [*RunStatus]:
        raise SearchError(f"expected one of {', '.join(RunStatus)}", f"status:{wanted}")
    if value.text is None:
        if number is None:
            raise SearchError("is a number; compare it with one, as in avg@8>0.4", name)
        return literal(number) == value.number
    # SQLite reads true and false of JSON as 1 and 0.
    spellings = {"true": ("true", "1"), "false": ("false", "0")}.get(wanted.lower(), (wanted.lower(),))
    is_text = or_(func.lower(value.text).in_(spellings), _has_item(value.text, wanted, number))
    if sign == ":" and name not in {"status", "kind"}:
        return _contains(value.text, wanted.lower())
    return is_text if number is None or value.number is None else or_(is_text, value.number == number)


def _has_item(text: ColumnElement[Any], wanted: str, number: float | None) -> ColumnElement[bool]:
    """Return whether a setting is a list that has this item; PostgreSQL writes 1e-05 as 0.00001."""
    spellings = {wanted.lower()} | (
        set() if number is None else {repr(number), f"{number:.15g}", f"{Decimal(repr(number)):f}"}
    )
    item = "|".join(re.escape(spelling) for spelling in sorted(spellings))
    found: ColumnElement[bool] = func.lower(text).regexp_match(rf'^\[(.*,)? *"?({item})"? *(,.*)?\]$')
    return found


def _holds_word(word: str) -> ColumnElement[bool]:
    runs = models.runs
    sources = [runs.c.spec[part]["source"].as_string() for part in ("model", "data")]
    texts = [runs.c.name, runs.c.run_id, method_expression(), *sources]
    notes = models.notes
    is_noted = select(notes.c.at).where(notes.c.run_key == runs.c.run_key, _contains(notes.c.text, word)).exists()
    return or_(*(_contains(text, word) for text in texts), _has_tag(_contains(models.tags.c.tag, word)), is_noted)


def _has_tag(condition: ColumnElement[bool]) -> ColumnElement[bool]:
    tags = models.tags
    return select(tags.c.tag).where(tags.c.run_key == models.runs.c.run_key, condition).exists()


def _contains(text: ColumnElement[str], word: str) -> ColumnElement[bool]:
    return func.coalesce(func.lower(text), "").contains(word.lower(), autoescape=True)


def list_specs(database: Database, run_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return the specification of each of these runs by its id."""
    runs = models.runs
    with database.read() as connection:
        rows = connection.execute(select(runs.c.run_id, runs.c.spec).where(one_of(runs.c.run_id, run_ids)))
        return {row.run_id: row.spec for row in rows}


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

    key: str = RunSortKey.CREATED
    """A `RunSortKey`, or the name of a value of `exgrpo.db.queries.run_values`; if no run has it, that of creation."""
    is_descending: bool = True


NEWEST_FIRST = RunOrder()


def sort_columns(connection: Connection, order: RunOrder) -> list[ColumnElement[Any]]:
    """Return the columns to order by."""
    value = _value(connection, order.key)
    ordered = value.desc() if order.is_descending else value.asc()
    return [value.is_(None), ordered, models.runs.c.run_id.desc()]


def comes_after(connection: Connection, order: RunOrder, run_id: str) -> ColumnElement[bool]:
    """Return the condition that a run comes after the run of this id, by its present value."""
    id_column, value = models.runs.c.run_id, _value(connection, order.key)
    last = connection.scalar(select(value).where(id_column == run_id))
    if last is None:
        return and_(value.is_(None), id_column < run_id)
    is_beyond = value < last if order.is_descending else value > last
    return or_(is_beyond, and_(value == last, id_column < run_id), value.is_(None))


def _value(connection: Connection, key: str) -> ColumnElement[Any]:
    runs = models.runs
    ranks = {state: index for index, state in enumerate(RunStatus)}
    columns: dict[str, ColumnElement[Any]] = {
        RunSortKey.CREATED: runs.c.created_at,
        RunSortKey.STARTED: runs.c.started_at,
        RunSortKey.NAME: natural_text(runs.c.name),
        RunSortKey.STATE: case(ranks, value=runs.c.status, else_=len(ranks)),
        RunSortKey.METHOD: natural_text(method_expression()),
        RunSortKey.PASS_AT_1: runs.c.summary["last_pass_at_1"].as_float(),
        RunSortKey.AVG_AT_N: runs.c.summary["last_avg_at_n"].as_float(),
    }
    if key in columns:
        return columns[key]
    try:
        value = value_of(connection, key)
    except SearchError:
        return runs.c.created_at
    if value.number is not None and (value.text is None or not _has_words(connection, value.text)):
        return value.number
    return natural_text(value.text)


def _has_words(connection: Connection, text: ColumnElement[Any]) -> bool:
    """Whether the value is no number in any run."""
    is_word = select(models.runs.c.run_key).where(~text.regexp_match(NUMBER)).limit(1)
    return connection.scalar(is_word) is not None
