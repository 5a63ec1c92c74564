"""Column types that read the same from SQLite and from PostgreSQL."""

import math
from datetime import UTC, datetime

from sqlalchemy import JSON, BigInteger, DateTime, Double, Integer
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

JsonDocument = JSON().with_variant(JSONB(), "postgresql")
"""A JSON value."""

LargeInteger = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits; SQLite makes a row id only of a column called INTEGER."""


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
