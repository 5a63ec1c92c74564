"""Bulk inserts that skip existing rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, Column, Connection, Float, Integer, String, Table
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeEngine

from exgrpo.db.tables.column_types import Number

_INTEGER_LIMIT = 1 << 31
_TYPES: dict[type[TypeEngine[Any]], type] = {Integer: int, String: str}


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, all with the same columns; rows whose key exists are left out.

    Values are converted column by column and the statement is written here, since SQLAlchemy's work per row costs more
    than the database's. PostgreSQL gets whole columns: one statement for any number of rows.
    """
    if not rows:
        return
    dialect = connection.dialect
    columns = [table.c[name] for name in rows[0]]
    values = [_values(column, rows, dialect) for column in columns]
    names = ", ".join(map(dialect.identifier_preparer.format_column, columns))
    target = f"INSERT INTO {dialect.identifier_preparer.format_table(table)} ({names})"
    if dialect.name == "sqlite":
        parameters = ", ".join("?" * len(columns))
        statement = f"{target} VALUES ({parameters}) ON CONFLICT DO NOTHING"
        connection.exec_driver_sql(statement, list(zip(*values, strict=True)))
    else:
        arrays = ", ".join(f"CAST(%s AS {_type_name(column, dialect)}[])" for column in columns)
        connection.exec_driver_sql(f"{target} SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING", tuple(values))


def _values(column: Column[Any], rows: Sequence[Mapping[str, Any]], dialect: Dialect) -> list[Any]:
    """Return a column's values as the driver takes them."""
    name = column.name
    values = [row[name] for row in rows]
    _check_types(column, values)
    convert = column.type.dialect_impl(dialect).bind_processor(dialect)
    if convert is not None:
        values = list(map(convert, values))
    if isinstance(column.type, Float | Number):
        # An array of PostgreSQL is of one type: no whole numbers among the others.
        values = [None if value is None else float(value) for value in values]
    return values


def _check_types(column: Column[Any], values: Sequence[Any]) -> None:
    """Refuse values that SQLite would store although they do not fit the column, as PostgreSQL refuses them."""
    allowed = next((python for sql, python in _TYPES.items() if isinstance(column.type, sql)), None)
    if allowed is None:
        return
    others = [kind for kind in set(map(type, values)) if not issubclass(kind, (allowed, type(None)))]
    if others:
        raise ValueError(f"{column.name}: expected {allowed.__name__}, got {others[0].__name__}.")
    if allowed is int and not isinstance(column.type, BigInteger):
        numbers = [value for value in values if value is not None]
        limit = column.info.get("limit", _INTEGER_LIMIT)
        if numbers and not -limit <= min(numbers) <= max(numbers) < limit:
            raise ValueError(f"{column.name}: expected numbers below {limit:,}.")


def _type_name(column: Column[Any], dialect: Dialect) -> str:
    # A cast to VARCHAR(n) would cut what is too long, where storing it is refused.
    return "TEXT" if isinstance(column.type, String) else column.type.compile(dialect)
