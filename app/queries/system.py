"""The database as it is."""

from app.queries.answers import ask
from db.queries.database_facts import DatabaseFacts, database_facts


def get_database_facts() -> DatabaseFacts:
    """Return kind, place, size and schema of the database."""
    return ask(database_facts)
