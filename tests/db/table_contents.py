"""Everything a database holds, to compare two of them."""

import math
from typing import Any

from sqlalchemy import select

from db.connections.session import Database
from db.tables import models


def contents(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return all rows of all tables, sorted; NaN as the word, so that equal contents compare equal."""
    with database.read() as connection:
        return {
            table.name: sorted((tuple(map(_comparable, row)) for row in connection.execute(select(table))), key=repr)
            for table in models.metadata.sorted_tables
        }


def _comparable(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
