"""Writing recorded events into the database."""
