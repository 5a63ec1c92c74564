"""Fields of runs' specifications: their values for lists, and conditions on them as users type them into a search."""

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Float, String, and_, case, cast, func, or_, select

from db.connections.session import Database
from db.tables import models

_CONDITION = re.compile(r"([a-z_][a-z0-9_]*(?:\.[a-z_][a-z0-9_]*)*)(!=|>=|<=|=|>|<)(.+)")
_NUMBER = r"^-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?$"


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
