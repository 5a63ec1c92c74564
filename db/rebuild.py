"""Building the database anew: everything in it follows from files."""

from db.schema import reset

__all__ = ["reset"]
