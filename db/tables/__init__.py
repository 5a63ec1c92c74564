"""The tables and their column types."""
