"""Opening SQLite or PostgreSQL; tables of another version are made again."""
