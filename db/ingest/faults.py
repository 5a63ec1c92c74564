"""Damage that was found in a run's files, kept in the run's summary."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Connection, select, update

from db.connections.session import Database
from db.tables import models
from db.tables.json_text import storable_text
from db.tables.run_lookup import require_run_key

MAX_FAULTS = 20
"""Further ones are not kept: `exgrpo verify` finds all."""
_MAX_CHARACTERS = 400


def record_faults(database: Database, run_id: str, faults: Sequence[str]) -> None:
    """Keep sentences on damage; one that is known changes nothing.

    Raises:
        UnknownRunError: There is no such run.
    """
    if faults:
        database.write(lambda connection: add_faults(connection, require_run_key(connection, run_id), faults))


def add_faults(connection: Connection, run_key: int, faults: Sequence[str]) -> None:
    """Keep sentences on damage, within a transaction."""
    is_run = models.runs.c.run_key == run_key
    summary: dict[str, Any] = connection.scalars(select(models.runs.c.summary).where(is_run)).one()
    known = summary.get("faults", [])
    new = dict.fromkeys(storable_text(fault[:_MAX_CHARACTERS]) for fault in faults)
    kept = [*known, *(fault for fault in new if fault not in known)][:MAX_FAULTS]
    if kept != known:
        connection.execute(update(models.runs).where(is_run).values(summary=summary | {"faults": kept}))
