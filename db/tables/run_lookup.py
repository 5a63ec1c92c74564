"""From a run's id to its key in the database."""

from sqlalchemy import Connection, select

from db.rows.runs import UnknownRunError
from db.tables.models import runs


def find_run_key(connection: Connection, run_id: str) -> int | None:
    """Return the run's key, or None if there is no such run."""
    if "\0" in run_id:  # PostgreSQL stores no such text
        return None
    return connection.scalar(select(runs.c.run_key).where(runs.c.run_id == run_id))


def require_run_key(connection: Connection, run_id: str) -> int:
    """Return the run's key.

    Raises:
        UnknownRunError: There is no such run.
    """
    run_key = find_run_key(connection, run_id)
    if run_key is None:
        raise UnknownRunError(f"{run_id}: the database has no such run; `exgrpo runs` lists the runs.")
    return run_key
