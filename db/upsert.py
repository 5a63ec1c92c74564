"""Inserting in bulk what may be there already."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Connection, Float, String, Table
from sqlalchemy.engine import Dialect

from db.column_types import Number


def insert_new(connection: Connection, table: Table, rows: Sequence[Mapping[str, Any]]) -> None:
    """Insert rows, all with the same columns; those whose key is taken are left out.

    Values are converted a column at a time and the statement is written here, since SQLAlchemy's own way through each
    row costs more than the database does. PostgreSQL is given whole columns: one statement, however many rows.
    """
    if not rows:
        return
    columns = [table.c[name] for name in rows[0]]
    values = [_values(column, rows, connection.dialect) for column in columns]
    if connection.dialect.name == "sqlite":
        _insert_rows(connection, columns, list(zip(*values, strict=True)))
    else:
        _insert_columns(connection, columns, values)


def insert_tuples(connection: Connection, table: Table, names: Sequence[str], rows: list[tuple[Any, ...]]) -> None:
    """Insert rows of values in the order of `names` and as the driver takes them, unless their key is taken."""
    if not rows:
        return
    columns = [table.c[name] for name in names]
    if connection.dialect.name == "sqlite":
        _insert_rows(connection, columns, rows)
    else:
        _insert_columns(connection, columns, [[row[place] for row in rows] for place in range(len(columns))])


def _insert_rows(connection: Connection, columns: Sequence[Column[Any]], rows: list[tuple[Any, ...]]) -> None:
    statement = f"{_beginning(connection, columns)} VALUES ({', '.join('?' * len(columns))}) ON CONFLICT DO NOTHING"
    connection.exec_driver_sql(statement, rows)


def _insert_columns(connection: Connection, columns: Sequence[Column[Any]], values: Sequence[list[Any]]) -> None:
    arrays = ", ".join(f"CAST(%s AS {_type_name(column, connection.dialect)}[])" for column in columns)
    statement = f"{_beginning(connection, columns)} SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"
    connection.exec_driver_sql(statement, tuple(values))


def _beginning(connection: Connection, columns: Sequence[Column[Any]]) -> str:
    preparer = connection.dialect.identifier_preparer
    names = ", ".join(map(preparer.format_column, columns))
    return f"INSERT INTO {preparer.format_table(columns[0].table)} ({names})"


def _values(column: Column[Any], rows: Sequence[Mapping[str, Any]], dialect: Dialect) -> list[Any]:
    """Return a column's values as the driver takes them."""
    name = column.name
    values = [row[name] for row in rows]
    convert = column.type.dialect_impl(dialect).bind_processor(dialect)
    if convert is not None:
        values = list(map(convert, values))
    if isinstance(column.type, Float | Number):
        # An array of PostgreSQL is of one type: no whole numbers among the others.
        values = [None if value is None else float(value) for value in values]
    return values


def _type_name(column: Column[Any], dialect: Dialect) -> str:
    # A cast to VARCHAR(n) would cut what is too long, where storing it is refused.
    return "TEXT" if isinstance(column.type, String) else column.type.compile(dialect)
