"""Opening SQLite or PostgreSQL, with the schema brought up to date."""
