"""Building the database anew: everything in it follows from files."""

from db.connections.schema import reset

__all__ = ["reset"]
