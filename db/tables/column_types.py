"""Column types, and a condition on many values, that are the same on SQLite and on PostgreSQL."""

import json
import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import JSON, BigInteger, Boolean, Column, DateTime, Double, Integer, Text, collate, func, literal
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement, GenericFunction
from sqlalchemy.types import TypeDecorator

from exgrpo.db.rows.sort_order import NUM_DIGITS, NUMBER_IN_NAME, natural_order

JsonDocument = JSON().with_variant(JSONB(), "postgresql")
"""A JSON value."""

OptionalDocument = JSON(none_as_null=True).with_variant(JSONB(none_as_null=True), "postgresql")
"""A JSON value, or NULL."""

LargeInteger = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits; SQLite makes a row id only of a column called INTEGER."""
_NUL = "\\u0000"
_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")


class UtcDateTime(TypeDecorator[datetime]):
    """A time: stored from any time zone, read in UTC."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Return the time in UTC; SQLite keeps it without a zone."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment.replace(tzinfo=None) if dialect.name == "sqlite" else moment

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return the time in UTC (the dialect does not matter)."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class Number(TypeDecorator[float]):
    """A float that may be NaN: stored as NULL, because SQLite knows no NaN, and given back as NaN."""

    impl = Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: Dialect) -> float | None:  # noqa: ARG002
        """Return None for NaN (the dialect does not matter)."""
        return None if value is None or math.isnan(value) else value

    def process_result_value(self, value: float | None, dialect: Dialect) -> float:  # noqa: ARG002
        """Return NaN for NULL (the dialect does not matter)."""
        return math.nan if value is None else value


def dump_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value as JSON text; values that JSON or PostgreSQL cannot store are replaced.

    NaN and infinities become the strings NaN, Infinity and -Infinity; NUL and halves of surrogate pairs become the
    replacement character.
    """
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:
        return json.dumps(_storable(value), ensure_ascii=False)
    return json.dumps(_storable(value), ensure_ascii=False) if _NUL in text else text


def storable_text(text: str) -> str:
    """Return the text with the replacement character for what PostgreSQL cannot store."""
    if "\x00" not in text and text.isascii():  # most texts, for which the pattern is far slower
        return text
    return _UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _storable(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, str):
        return storable_text(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    if isinstance(value, dict):
        return {storable_text(key) if isinstance(key, str) else key: _storable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(item) for item in value]
    return value


class one_of(FunctionElement[bool]):  # noqa: N801 - reads as a condition
    """Whether a column has one of any number of values; of `in_` SQLite takes 32,766, PostgreSQL 65,535."""

    inherit_cache = True
    type = Boolean()
    _is_implicitly_boolean = True  # else SQLite is asked for `(...) = 1`, which no index answers

    def __init__(self, column: Column[Any], values: Iterable[int | str]) -> None:
        super().__init__(column, literal(dump_json([*values]), Text))


@compiles(one_of, "sqlite")
def _in_sqlite(element: one_of, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - the compiler's own
    column, values = (compiler.process(part, **options) for part in element.clauses)
    return f"({column} IN (SELECT value FROM json_each({values})))"


@compiles(one_of, "postgresql")
def _in_postgresql(element: one_of, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - likewise
    column, values = (compiler.process(part, **options) for part in element.clauses)
    kind = "BIGINT" if element.clauses.clauses[0].type.python_type is int else "TEXT"
    return f"({column} = ANY (ARRAY(SELECT json_array_elements_text(CAST({values} AS JSON)))::{kind}[]))"


class natural_text(GenericFunction[str]):  # noqa: N801 - reads as a function
    """A text to sort by, without case and with numbers as numbers.

    Both databases sort alike, whatever their collation, if LC_CTYPE of PostgreSQL knows Unicode.
    """

    inherit_cache = True
    type = Text()


@compiles(natural_text, "postgresql")
def _naturally_in_postgresql(element: natural_text, compiler: SQLCompiler, **options: Any) -> str:  # noqa: ANN401 - likewise
    padded = func.regexp_replace(func.lower(*element.clauses), NUMBER_IN_NAME, rf"{'0' * NUM_DIGITS}\1", "g")
    cut = func.regexp_replace(padded, rf"(?<![0-9])0*([0-9]{{{NUM_DIGITS}}})(?![0-9])", r"\1", "g")
    return compiler.process(collate(cut, "C"), **options)


def sqlite_natural_text(text: str | None) -> str | None:
    """Return `natural_text`, which SQLite calls by its name."""
    return None if text is None else natural_order(text.lower())
